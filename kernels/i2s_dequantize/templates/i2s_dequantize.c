/* A kernel of i2s_dequantize: x = q * scale in float32. */
#include <stdint.h>

void i2s_dequantize(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)q[i] * scale;
}
