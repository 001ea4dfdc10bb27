// Activations and their gated forms, and arithmetic with broadcasting.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/unary.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#include "ggml-cuda/unary.cu"
#include "ggml-cuda/binbcast.cu"
#include "ggml-cuda/scale.cu"
#include "ggml-cuda/clamp.cu"
#include "ggml-cuda/softcap.cu"

#define UNARY(op) template __global__ void unary_op_kernel<op, float>(const float *, float *, int)
#define GATED(op, T)                                                                             \
    template __global__ void unary_gated_op_kernel<op, T>(                                       \
        const T *, const T *, T *, int64_t, int64_t, int64_t, int64_t)
#define BROADCAST_ARGUMENTS(A, B, C)                                                             \
    const A *, const B *, C *, uint32_t, uint32_t, uint32_t, uint3, uint3, uint3, uint3, uint3,   \
        uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,           \
        uint32_t, uint32_t, uint32_t
#define UNRAVELLED_ARGUMENTS(A, B, C)                                                            \
    const A *, const B *, C *, uint3, uint3, uint3, uint32_t, uint3, uint3, uint3, uint3, uint3,  \
        uint3, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,    \
        uint32_t, uint32_t, uint32_t

UNARY(op_sigmoid);
UNARY(op_softplus);
UNARY(op_exp);
UNARY(op_gelu);
UNARY(op_gelu_erf);
UNARY(op_tanh);
UNARY(op_expm1);
UNARY(op_round);
UNARY(op_sgn);
UNARY(op_hardswish);
template __global__ void unary_op_kernel<op_silu, half>(const half *, half *, int);
template __global__ void unary_op_kernel<op_silu, nv_bfloat16>(
    const nv_bfloat16 *, nv_bfloat16 *, int);
GATED(op_silu, float);
GATED(op_silu, half);
GATED(op_gelu, float);
GATED(op_sigmoid, float);
GATED(op_relu, nv_bfloat16);
template __global__ void swiglu_oai_kernel<float>(
    const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t, float, float);
template __global__ void swiglu_clamp_kernel<float>(
    const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t, float);
template __global__ void swiglu_clamp_kernel<half>(
    const half *, const half *, half *, int64_t, int64_t, int64_t, int64_t, float);
template __global__ void scale_f32<float>(const float *, float *, float, float, int64_t);
template __global__ void k_bin_bcast<op_add, float, float, float, const float *>(
    BROADCAST_ARGUMENTS(float, float, float), const float *);
template __global__ void k_bin_bcast<op_mul, half, float, half, const float *>(
    BROADCAST_ARGUMENTS(half, float, half), const float *);
template __global__ void k_bin_bcast<op_div, float, float, float, const float *>(
    BROADCAST_ARGUMENTS(float, float, float), const float *);
template __global__ void k_bin_bcast<op_repeat, float, float, float>(
    BROADCAST_ARGUMENTS(float, float, float));
template __global__ void k_bin_bcast<op_add, float, float, float, const float *, const float *,
    const float *>(BROADCAST_ARGUMENTS(float, float, float), const float *, const float *,
    const float *);
template __global__ void k_bin_bcast_unravel<op_sub, float, float, float, const float *>(
    UNRAVELLED_ARGUMENTS(float, float, float), const float *);
