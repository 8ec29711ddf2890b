// An independent reference of i2s_dequantize.

#include "../peers/reference/reference.h"

extern "C" {

void i2s_dequantize(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        x[i] = float(double(q[i]) * double(scale));
}

}  // extern "C"
