// The source's own mul_mat_q, for one small tile of each type: loaders, tensor-core dot products,
// write-back. Naming an instance in a table makes the compiler emit it; the table follows this text.
#include "ggml-cuda/mmq.cuh"

#define TILE(...)  (const void *) mul_mat_q<__VA_ARGS__>,
#define FIXUP(...) (const void *) mul_mat_q_stream_k_fixup<__VA_ARGS__>,

static const void * const kernels[] __attribute__((used)) = {
