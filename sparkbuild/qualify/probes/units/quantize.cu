// The source's own quantisers of activations: to q8_1, to the layouts of MMQ, and to four bits.
#include "ggml-cuda/quantize.cu"
