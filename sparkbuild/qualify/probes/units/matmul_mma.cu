// Matrix times several vectors in f32, f16 and bf16 on tensor cores.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/mmf.cuh"

#define MATMUL(T, columns, warps, experts)                                                       \
    template __global__ void mul_mat_f<T, 32, columns, warps, experts>(                          \
        const T *, const float *, const int32_t *, float *, int, int, int, int, int, int, int,    \
        int, int, int, int, int, int, int, int, int)
MATMUL(half2, 8, 2, false);
MATMUL(float, 8, 2, true);
MATMUL(nv_bfloat162, 16, 4, false);
