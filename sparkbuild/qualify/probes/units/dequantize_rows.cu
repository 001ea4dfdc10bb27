// The source's own kernels that fetch quantised rows by index, to f32; the table follows this text.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"

// A host function of a stream becomes a template that nobody instantiates: it asks for no kernels.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto
#include "ggml-cuda/getrows.cu"

#define SMALL(...)  (const void *) k_get_rows<__VA_ARGS__, float>,
#define SUPER(read) (const void *) k_get_rows_kq<float, read<float>>,

static const void * const kernels[] __attribute__((used)) = {
