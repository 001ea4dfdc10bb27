// Flash attention's vector kernel, and what combines its parts.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/fattn-common.cuh"

#include "ggml-cuda/fattn-vec.cuh"

#define ATTENTION(D, columns, K, V)                                                              \
    template __global__ void flash_attn_ext_vec<D, columns, K, V, false>(                        \
        const char *, const char *, const char *, const char *, const char *, const int *,        \
        float *, float2 *, float, float, float, float, uint32_t, float, int32_t, uint3, int32_t,  \
        int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, \
        int64_t, int32_t, int32_t, int64_t, int32_t, int32_t, int32_t, int32_t, int32_t, int64_t)
ATTENTION(64, 1, GGML_TYPE_F16, GGML_TYPE_F16);
ATTENTION(128, 2, GGML_TYPE_Q8_0, GGML_TYPE_Q8_0);
ATTENTION(128, 1, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0);
template __global__ void flash_attn_combine_results<64>(
    const float *, const float2 *, float *, int);
template __global__ void flash_attn_mask_to_KV_max<2>(const half2 *, int *, int, int64_t, int64_t);
