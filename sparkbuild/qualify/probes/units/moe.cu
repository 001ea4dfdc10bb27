// Routing of experts, sorting, the weighted sum of experts, and hyper-connections.
#include "ggml-cuda/common.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#undef GGML_CUDA_USE_CUB // its sorts are the toolkit's, and cost seconds to compile


#include "ggml-cuda/argsort.cu"
#include "ggml-cuda/topk-moe.cu"
#include "ggml-cuda/moe-weighted-reduction.cu"
#if __has_include("ggml-cuda/dsv4-hc.cu")
#include "ggml-cuda/dsv4-hc.cu"
#endif

#define TOP_K(n, bias)                                                                           \
    template __global__ void topk_moe_cuda<n, bias>(                                             \
        const float *, float *, int32_t *, float *, int, int, float, float, topk_moe_config)
TOP_K(288, true);
TOP_K(32, false);
TOP_K(8, false);
template __global__ void k_argsort_f32_i32<GGML_SORT_ORDER_ASC>(const float *, int *, int, int);
template __global__ void k_argsort_f32_i32<GGML_SORT_ORDER_DESC>(const float *, int *, int, int);
#if __has_include("ggml-cuda/dsv4-hc.cu")
template __global__ void dsv4_hc_pre_f32<false>(
    const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, float);
template __global__ void dsv4_hc_pre_f32<true>(
    const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, float);
template __global__ void dsv4_hc_post_f32<true>(
    const float *, const float *, const float *, const float *, float *, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t);
template __global__ void dsv4_hc_post_f32<false>(
    const float *, const float *, const float *, const float *, float *, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t);
#endif
