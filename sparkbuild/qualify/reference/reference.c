/* The few calls that sparkbuild makes into the CPU side of the source, whatever its structs hold. */
#include "ggml.h"
#include "ggml-cpu.h"

#define OUT __attribute__((visibility("default")))

OUT void reference_start(void) {
    ggml_cpu_init();
}

OUT int reference_count(void) {
    return GGML_TYPE_COUNT;
}

OUT const char * reference_name(int type) {
    return ggml_get_type_traits(type)->type_name;
}

OUT long long reference_elements(int type) {
    return ggml_get_type_traits(type)->blck_size;
}

OUT long long reference_size(int type) {
    return (long long) ggml_get_type_traits(type)->type_size;
}

OUT int reference_quantized(int type) {
    return ggml_get_type_traits(type)->is_quantized;
}

/* 0 where the type cannot be read. */
OUT int reference_dequantize(int type, const void * x, float * y, long long n) {
    ggml_to_float_t convert = ggml_get_type_traits(type)->to_float;
    if (convert) {
        convert(x, y, n);
    }
    return convert != NULL;
}

OUT int reference_wants_weights(int type) {
    return ggml_quantize_requires_imatrix(type);
}

OUT void reference_quantize(int type, const float * x, void * y, long long rows, long long n, const float * weights) {
    ggml_quantize_chunk(type, x, y, 0, rows, n, weights);
}

/* What a row is quantised to before it meets this type; -1 where there is no dot product. */
OUT int reference_partner(int type) {
    const struct ggml_type_traits_cpu * traits = ggml_get_type_traits_cpu(type);
    return traits->vec_dot ? (int) traits->vec_dot_type : -1;
}

OUT void reference_quantize_row(int type, const float * x, void * y, long long n) {
    ggml_get_type_traits_cpu(type)->from_float(x, y, n);
}

OUT float reference_vec_dot(int type, const void * x, const void * y, long long n) {
    float result = 0.0f;
    ggml_get_type_traits_cpu(type)->vec_dot((int) n, &result, 0, x, 0, y, 0, 1);
    return result;
}
