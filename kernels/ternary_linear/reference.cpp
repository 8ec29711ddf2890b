// An independent reference of ternary_linear.

#include "../peers/reference/reference.h"

extern "C" {

// Of activation_quantize and ternary_matmul.
void activation_quantize(const float *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K);
void activation_quantize_float16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K);
void activation_quantize_bfloat16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K);
void ternary_matmul_row16_float32(
    const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, float *out,
    int64_t M, int64_t N, int64_t K);
void ternary_matmul_row16_bfloat16(
    const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, uint16_t *out,
    int64_t M, int64_t N, int64_t K);
void ternary_matmul_row16_float16(
    const int8_t *activations, const uint8_t *weights, float weight_scale, const float *act_scale, uint16_t *out,
    int64_t M, int64_t N, int64_t K);

#define TERNARY_LINEAR(name, Element, quantize) \
    void ternary_linear_##name##_float32( \
        const Element *x, const uint8_t *weights, float weight_scale, float *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_float32(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    } \
    void ternary_linear_##name##_bfloat16( \
        const Element *x, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_bfloat16(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    } \
    void ternary_linear_##name##_float16( \
        const Element *x, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        std::vector<int8_t> q(size_t(M * K)); \
        std::vector<float> scale(static_cast<size_t>(M)); \
        std::vector<int32_t> sum(static_cast<size_t>(M)); \
        quantize(x, q.data(), scale.data(), sum.data(), M, K); \
        ternary_matmul_row16_float16(q.data(), weights, weight_scale, scale.data(), out, M, N, K); \
    }

TERNARY_LINEAR(fp32, float, activation_quantize)
TERNARY_LINEAR(fp16, uint16_t, activation_quantize_float16)
TERNARY_LINEAR(bf16, uint16_t, activation_quantize_bfloat16)

}  // extern "C"
