// Norms, soft-max and sums over rows, with the launchers turned off.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#include "ggml-cuda/norm.cu"
#include "ggml-cuda/softmax.cu"
#include "ggml-cuda/sumrows.cu"

template __global__ void soft_max_f32<true, 0, 0, float>(
    const float *, const float *, const float *, float *, soft_max_params);
template __global__ void soft_max_f32<true, 0, 0, half>(
    const float *, const half *, const float *, float *, soft_max_params);
template __global__ void soft_max_f32<false, 0, 0, float>(
    const float *, const float *, const float *, float *, soft_max_params);
template __global__ void soft_max_f32<true, 32, 32, float>(
    const float *, const float *, const float *, float *, soft_max_params);
template __global__ void soft_max_f32<true, 256, 256, half>(
    const float *, const half *, const float *, float *, soft_max_params);

#define NORM_ARGUMENTS const float *, float *, int, int64_t, int64_t, int64_t, float
#define OPERAND_ARGUMENTS const float *, int64_t, int64_t, int64_t, uint3, uint3, uint3, uint3
#define RMS_NORM(block, multiplied, added, scaled)                                               \
    template __global__ void rms_norm_f32<block, multiplied, added, scaled>(                     \
        NORM_ARGUMENTS, OPERAND_ARGUMENTS, OPERAND_ARGUMENTS, float)
template __global__ void norm_f32<32>(NORM_ARGUMENTS);
template __global__ void norm_f32<1024>(NORM_ARGUMENTS);
template __global__ void l2_norm_f32<32>(NORM_ARGUMENTS);
template __global__ void l2_norm_f32<1024>(NORM_ARGUMENTS);
template __global__ void group_norm_f32<32>(const float *, float *, int, int, float);
RMS_NORM(256, false, false, true);
RMS_NORM(256, true, true, false);
RMS_NORM(1024, true, false, false);
template __global__ void reduce_rows_f32<false>(const float *, float *, int);
template __global__ void reduce_rows_f32<true>(const float *, float *, int);
