// An independent reference of i2s_quantize.

#include "../peers/reference/reference.h"

extern "C" {

void i2s_quantize(const float *x, float scale, int8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        q[i] = int8_t(std::nearbyintf(clamped(x[i] / scale, -2.0f, 1.0f)));
}

void i2s_quantize_float16(const uint16_t *x, float scale, int8_t *q, int64_t n)
{
    i2s_quantize(all_widened(x, n, kHalf).data(), scale, q, n);
}

void i2s_quantize_bfloat16(const uint16_t *x, float scale, int8_t *q, int64_t n)
{
    i2s_quantize(all_widened(x, n, kBrain).data(), scale, q, n);
}

}  // extern "C"
