// Linear attention: the gated delta rule, the convolution before it, the chunked form's pieces.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/unary.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#undef GGML_CUDA_USE_CUB // its scans are the toolkit's, and cost seconds to compile


#if __has_include("ggml-cuda/gated_delta_net.cu")
#include "ggml-cuda/gated_delta_net.cu"

#define DELTA_NET(S, KDA, keep)                                                                  \
    template __global__ void gated_delta_net_cuda<S, KDA, keep>(                                 \
        const float *, const float *, const float *, const float *, const float *, const float *, \
        float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, \
        int64_t, int64_t, int64_t, int64_t, uint3, uint3, float, int64_t, int)

DELTA_NET(128, true, false);
DELTA_NET(128, true, true);
DELTA_NET(128, false, false);
DELTA_NET(16, true, false);
#endif

#include "ggml-cuda/ssm-conv.cu"
#include "ggml-cuda/cumsum.cu"
#include "ggml-cuda/tri.cu"
#include "ggml-cuda/solve_tri.cu"
#include "ggml-cuda/diag.cu"

#define CONV_ARGUMENTS                                                                           \
    const float *, const float *, const float *, int, int, int, int, float *, int, int, int, int64_t
#define TRI_ARGUMENTS                                                                            \
    const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,        \
        int64_t, int64_t, int64_t, int64_t, int64_t
template __global__ void ssm_conv_f32<true, 128, 4>(CONV_ARGUMENTS);
template __global__ void ssm_conv_f32<false, 128, 4>(CONV_ARGUMENTS);
template __global__ void ssm_conv_long_token_f32<true, 128, 4, 32>(CONV_ARGUMENTS);
template __global__ void tri_kernel<float, true, 1>(TRI_ARGUMENTS);
template __global__ void tri_kernel<float, false, 0>(TRI_ARGUMENTS);
template __global__ void cumsum_kernel<float>(
    const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t);
template __global__ void solve_tri_f32_fast<0, 0>(
    const float *, const float *, float *, uint3, size_t, size_t, size_t, size_t, size_t, size_t,
    int, int);
template __global__ void diag_kernel<float>(
    float *, const float *, int64_t, int64_t, int64_t, int64_t, int64_t);
