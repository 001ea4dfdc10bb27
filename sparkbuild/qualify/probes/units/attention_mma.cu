// Flash attention on tensor cores: dense, and sparse as GLM-5.3-Flash's indexer selects its keys.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/fattn-common.cuh"

#ifndef GGML_CUDA_FA_F16_F16 // which vector kernels the host may choose: none
#define NONE(K)                                                                                  \
    constexpr bool GGML_CUDA_FA_##K##_F16 = false, GGML_CUDA_FA_##K##_BF16 = false,               \
                   GGML_CUDA_FA_##K##_Q4_0 = false, GGML_CUDA_FA_##K##_Q4_1 = false,              \
                   GGML_CUDA_FA_##K##_Q5_0 = false, GGML_CUDA_FA_##K##_Q5_1 = false,              \
                   GGML_CUDA_FA_##K##_Q8_0 = false
NONE(F16);
NONE(BF16);
NONE(Q4_0);
NONE(Q4_1);
NONE(Q5_0);
NONE(Q5_1);
NONE(Q8_0);
#endif

// Host functions whose kernels the source compiles in this very file: not here.
template <int, int, int, int>
void ggml_cuda_flash_attn_ext_mma_f16_case(ggml_backend_cuda_context &, ggml_tensor *);
#define ELSEWHERE(...)                                                                           \
    extern template void ggml_cuda_flash_attn_ext_mma_f16_case<__VA_ARGS__>(                     \
        ggml_backend_cuda_context &, ggml_tensor *)
ELSEWHERE(192, 128, 1, 16);
ELSEWHERE(192, 128, 2, 16);
ELSEWHERE(192, 128, 4, 16);
ELSEWHERE(192, 128, 1, 8);
ELSEWHERE(192, 128, 2, 8);
ELSEWHERE(192, 128, 4, 8);
ELSEWHERE(192, 128, 8, 8);
ELSEWHERE(576, 512, 2, 4);
#include "ggml-cuda/fattn.cu"

#define ATTENTION(size, tokens, heads, sparse)                                                   \
    template __global__ void flash_attn_ext_f16<size, size, tokens, heads, false, false, sparse>( \
        const char *, const char *, const char *, const char *, const char *, const int *,        \
        float *, float2 *, float, float, float, float, uint32_t, float, int32_t, uint3, int32_t,  \
        int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, \
        int64_t, int32_t, int32_t, int64_t, int32_t, int32_t, int32_t, int32_t, int32_t, int64_t)
ATTENTION(64, 8, 1, false);
ATTENTION(512, 1, 8, true);
template __global__ void flash_attn_mask_to_sparse_indices<1, false>(
    const half *, int32_t *, int32_t *, int, int, int, int64_t, int64_t);
