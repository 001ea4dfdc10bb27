// Matrix times a few vectors in f32, f16 and bf16.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/unary.cuh"
#include "ggml-cuda/mmf.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#include "ggml-cuda/mmvf.cu"

#define MATVEC(T, A, columns, block, fused, tokens)                                              \
    template __global__ void mul_mat_vec_f<T, A, columns, block, fused, tokens>(                 \
        const T *, const float *, const int32_t *, ggml_cuda_mm_fusion_args_device, float *, int, \
        uint3, int, int, int, uint3, int, int, int, uint3, int, int, int, int)
MATVEC(float, float, 3, 96, false, false);
MATVEC(float, float, 1, 32, true, false);
MATVEC(half, float, 1, 64, true, false);
MATVEC(half, half, 2, 32, false, false);
MATVEC(nv_bfloat16, float, 1, 64, false, true);
