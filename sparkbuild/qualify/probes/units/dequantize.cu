// The source's own conversions of quantised rows to f32, f16 and bf16.
#include "ggml-cuda/convert.cu"
