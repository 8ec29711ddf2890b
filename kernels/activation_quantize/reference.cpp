// An independent reference of activation_quantize.

#include "../peers/reference/reference.h"

extern "C" {

void activation_quantize(const float *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    for (int64_t m = 0; m < M; ++m) {
        float largest = 1e-5f;
        for (int64_t k = 0; k < K; ++k)
            largest = std::max(largest, std::fabs(x[m * K + k]));
        scale[m] = 127.0f / largest;
        int64_t total = 0;
        for (int64_t k = 0; k < K; ++k) {
            q[m * K + k] = int8_t(clamped(std::nearbyintf(x[m * K + k] * scale[m]), -128.0f, 127.0f));
            total += q[m * K + k];
        }
        sum[m] = int32_t(total);
    }
}

void activation_quantize_float16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    activation_quantize(all_widened(x, M * K, kHalf).data(), q, scale, sum, M, K);
}

void activation_quantize_bfloat16(const uint16_t *x, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K)
{
    activation_quantize(all_widened(x, M * K, kBrain).data(), q, scale, sum, M, K);
}

}  // extern "C"
