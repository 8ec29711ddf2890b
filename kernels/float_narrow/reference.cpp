// An independent reference of float_narrow.

#include "../peers/reference/reference.h"

extern "C" {

void float_narrow_float16(const float *x, uint16_t *h, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        h[i] = narrowed_float(x[i], kHalf);
}

void float_narrow_bfloat16(const float *x, uint16_t *h, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        h[i] = narrowed_float(x[i], kBrain);
}

}  // extern "C"
