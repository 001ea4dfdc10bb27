// The source's own conversions of quantised rows to f32, f16 and bf16, and its kernels that fetch
// rows by index to f32, whose table follows this text.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/getrows.cuh"

#include "ggml-cuda/convert.cu"

// A host function of a stream becomes a template that nobody instantiates: it asks for no kernels.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto
namespace rows { // this file and the one above include dequantize.cuh, which has no guard
#include "ggml-cuda/getrows.cu"
}

#define SMALL(qk, qr, read) (const void *) rows::k_get_rows<qk, qr, rows::read, float>,
#define SUPER(read)         (const void *) rows::k_get_rows_kq<float, rows::read<float>>,

static const void * const kernels[] __attribute__((used)) = {
