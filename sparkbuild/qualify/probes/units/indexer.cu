// The lightning indexer's scores of keys, in each of its three kernels.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/fattn-common.cuh"
#include <mma.h>

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto

#include "ggml-cuda/lightning-indexer.cu"

#define INDEXER(kernel, keys, heads, type)                                                       \
    template __global__ void kernel<8, keys, 128, heads, type>(                                  \
        const float *, const char *, const float *, const half *, float *, int64_t, int64_t,      \
        int64_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t,  \
        size_t, size_t, size_t, size_t, size_t, int64_t)
INDEXER(lightning_indexer_kernel_wmma, 32, 32, GGML_TYPE_F16);
INDEXER(lightning_indexer_kernel_wmma, 32, 32, GGML_TYPE_Q8_0);
INDEXER(lightning_indexer_kernel_vec, 64, 32, GGML_TYPE_F32);
INDEXER(lightning_indexer_kernel_vec, 64, 4, GGML_TYPE_Q4_0);
INDEXER(lightning_indexer_kernel_tile, 64, 4, GGML_TYPE_F16);
