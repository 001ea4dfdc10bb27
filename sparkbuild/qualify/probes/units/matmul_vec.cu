// The source's own mul_mat_vec_q: what a token costs. The table of instances follows this text.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/mmvq.cuh"
#include "ggml-cuda/quantize.cuh"
#include "ggml-cuda/unary.cuh"
#include "ggml-cuda/vecdotq.cuh"

// A host function of a stream or a context becomes a template that nobody instantiates.
#define cudaStream_t auto
#define ggml_backend_cuda_context auto
#include "ggml-cuda/mmvq.cu"

#define ONE(...)     (const void *) mul_mat_vec_q<__VA_ARGS__>,
#define EXPERTS(...) (const void *) mul_mat_vec_q_moe<__VA_ARGS__>,

static const void * const kernels[] __attribute__((used)) = {
