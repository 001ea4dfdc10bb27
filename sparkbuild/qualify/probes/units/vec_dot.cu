// One kernel for each vec_dot_*_q8_1 of the source, called as mul_mat_vec_q calls it: each thread
// takes one block of x, its own blocks of y, and one value of iqs. The kernels follow this text.
#include "ggml-cuda/common.cuh"
#include "ggml-cuda/vecdotq.cuh"

#define EACH(type, enumerator, vdr)                                                              \
    extern "C" __global__ void vec_dot_each_##type(                                              \
            const void * x, const block_q8_1 * y, float * dst, const int n) {                    \
        using traits = ggml_cuda_type_traits<enumerator>;                                        \
        constexpr int per = traits::qi / (vdr);                                                  \
        const int k = blockIdx.x*blockDim.x + threadIdx.x;                                       \
        if (k < n) {                                                                             \
            const int kbx = k / per;                                                             \
            dst[k] = vec_dot_##type##_q8_1(                                                      \
                x, y + kbx*(traits::qk/QK8_1), kbx, (vdr)*(k % per));                            \
        }                                                                                        \
    }

// Where it is not known which elements an iqs covers: a whole block, whose sum is what counts.
#define WHOLE(type, enumerator, vdr)                                                             \
    extern "C" __global__ void vec_dot_whole_##type(                                             \
            const void * x, const block_q8_1 * y, float * dst, const int n) {                    \
        using traits = ggml_cuda_type_traits<enumerator>;                                        \
        const int kbx = blockIdx.x*blockDim.x + threadIdx.x;                                     \
        if (kbx < n) {                                                                           \
            float sum = 0.0f;                                                                    \
            for (int iqs = 0; iqs < traits::qi; iqs += (vdr)) {                                  \
                sum += vec_dot_##type##_q8_1(x, y + kbx*(traits::qk/QK8_1), kbx, iqs);           \
            }                                                                                    \
            dst[kbx] = sum;                                                                      \
        }                                                                                        \
    }

