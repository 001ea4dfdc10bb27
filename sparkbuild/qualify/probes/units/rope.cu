// Rotary position embedding, alone and fused with the norm before it.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#include "ggml-cuda/rope.cu"

#define ROPE_ARGUMENTS(T, D)                                                                     \
    const T *, D *, int, int, int, int, int, int, int, int, int, int, int, const int32_t *,       \
        float, float, float, rope_corr_dims, float, const float *

template __global__ void rope_norm<true, false, float, float>(
    ROPE_ARGUMENTS(float, float), const int64_t *, int, bool);
template __global__ void rope_norm<true, true, float, half>(
    ROPE_ARGUMENTS(float, half), const int64_t *, int, bool);
template __global__ void rope_neox<true, false, float, half>(
    ROPE_ARGUMENTS(float, half), const int64_t *, int, bool);
template __global__ void rope_neox<true, true, float, float>(
    ROPE_ARGUMENTS(float, float), const int64_t *, int, bool);
template __global__ void rope_neox<false, false, half, half>(
    ROPE_ARGUMENTS(half, half), const int64_t *, int, bool);
template __global__ void rope_multi<true, false, float>(
    ROPE_ARGUMENTS(float, float), mrope_sections, bool, bool);
template __global__ void rope_multi<true, true, half>(
    ROPE_ARGUMENTS(half, half), mrope_sections, bool, bool);
template __global__ void rope_vision<true, false, float>(
    const float *, float *, int, int, int, int, int, int, int, int, int, int, const int32_t *,
    float, float, float, rope_corr_dims, float, const float *, mrope_sections);
template __global__ void rms_norm_mul_rope_f32<256, false, float>(
    const float *, float *, int, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float,
    const float *, int64_t, int64_t, int64_t, uint3, uint3, uint3, uint3, int, const int32_t *,
    float, float, float, rope_corr_dims, float, const float *, const int64_t *, int, bool);
template __global__ void rms_norm_mul_rope_f32<256, true, half>(
    const float *, half *, int, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float,
    const float *, int64_t, int64_t, int64_t, uint3, uint3, uint3, uint3, int, const int32_t *,
    float, float, float, rope_corr_dims, float, const float *, const int64_t *, int, bool);
