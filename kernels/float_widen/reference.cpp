// An independent reference of float_widen.

#include "../peers/reference/reference.h"

extern "C" {

void float_widen_float16(const uint16_t *h, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        x[i] = widened(h[i], kHalf);
}

void float_widen_bfloat16(const uint16_t *h, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        x[i] = widened(h[i], kBrain);
}

}  // extern "C"
