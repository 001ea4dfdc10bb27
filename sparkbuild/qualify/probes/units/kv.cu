// What goes into the KV cache and comes out of it: conversions, copies, rows by index.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/cpy-utils.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates,
// so that it asks for no kernels; those below are instantiated by name.
#define cudaStream_t auto
// Here a context cannot be: functions of it are specialised.
#define ggml_cuda_op_set_rows(...)                                                               \
    set_rows_declared(__VA_ARGS__);                                                              \
    template <typename> void set_rows_unused(__VA_ARGS__)
#include "ggml-cuda/set-rows.cu"
#define ggml_backend_cuda_context auto
#include "ggml-cuda/cpy.cu"
namespace rows { // it and cpy.cu both include dequantize.cuh, which has no guard
#include "ggml-cuda/getrows.cu"
}
#include "ggml-cuda/concat.cu"
#include "ggml-cuda/fill.cu"
#include "ggml-cuda/arange.cu"

#define SET_ROWS_ARGUMENTS                                                                       \
    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,     \
        int64_t, int64_t, int64_t, int64_t, uint3, uint3, uint3, uint3, uint3
#define SET_ROWS(T, I, D)                                                                        \
    template __global__ void k_set_rows<T, I, D>(const T *, const I *, D *, SET_ROWS_ARGUMENTS)
#define SET_ROWS_QUANT(block, qk, quantize)                                                      \
    template __global__ void k_set_rows_quant<int64_t, block, qk, quantize>(                     \
        const float *, const int64_t *, block *, SET_ROWS_ARGUMENTS)
#define COPY_ARGUMENTS                                                                           \
    const char *, char *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, \
        int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define COPY(S, D) template __global__ void cpy_scalar<cpy_1_scalar<S, D>>(COPY_ARGUMENTS)
#define GET_ROWS_ARGUMENTS                                                                       \
    int64_t, int64_t, uint3, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t

SET_ROWS(float, int64_t, half);
SET_ROWS(float, int32_t, float);
SET_ROWS(float, int64_t, nv_bfloat16);
SET_ROWS_QUANT(block_q8_0, QK8_0, quantize_f32_q8_0_block);
SET_ROWS_QUANT(block_q4_0, QK4_0, quantize_f32_q4_0_block);
SET_ROWS_QUANT(block_q5_1, QK5_1, quantize_f32_q5_1_block);
COPY(float, float);
COPY(float, half);
COPY(half, float);
template __global__ void cpy_scalar_transpose<float>(COPY_ARGUMENTS);
template __global__ void cpy_scalar_transpose<half>(COPY_ARGUMENTS);
template __global__ void cpy_scalar_contiguous<float, int32_t>(const char *, char *, int64_t);
template __global__ void cpy_scalar_contiguous<int32_t, float>(const char *, char *, int64_t);
template __global__ void cpy_scalar_contiguous<float, nv_bfloat16>(const char *, char *, int64_t);
template __global__ void rows::k_get_rows_float<float, float>(
    const float *, const int32_t *, float *, GET_ROWS_ARGUMENTS);
template __global__ void rows::k_get_rows_float<half, float>(
    const half *, const int32_t *, float *, GET_ROWS_ARGUMENTS);
template __global__ void rows::k_get_rows_float<nv_bfloat16, float>(
    const nv_bfloat16 *, const int32_t *, float *, GET_ROWS_ARGUMENTS);
template __global__ void rows::k_get_rows_float_vec<float>(
    const float *, const int32_t *, float *, GET_ROWS_ARGUMENTS);
template __global__ void concat_cont<uint32_t, 0>(
    const uint32_t *, const uint32_t *, uint32_t *, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t);
template __global__ void concat_cont<uint32_t, 1>(
    const uint32_t *, const uint32_t *, uint32_t *, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t);
template __global__ void concat_non_cont<uint32_t, 0>(
    const char *, const char *, char *, int64_t, int64_t, int64_t, int64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, int64_t, int64_t, int64_t, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
    int64_t, int64_t, int64_t, int64_t, uint64_t, uint64_t, uint64_t, uint64_t);
template __global__ void fill_kernel<half>(half *, int64_t, half);
