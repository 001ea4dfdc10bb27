__global__ void scale(float * values, float factor) {
    values[threadIdx.x] *= factor;
}

extern "C" void gpu_scale(float * values, float factor) {
    scale<<<1, 32>>>(values, factor);
}
