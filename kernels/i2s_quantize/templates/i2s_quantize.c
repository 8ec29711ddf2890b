/* A kernel of i2s_quantize: q = rint(clamp(x / scale, -2, 1)), the division in float32, ties to even. */
#include <math.h>
#include <stdint.h>

/* `bad` holds -1: leave the index of the first NaN or infinity there. */
void i2s_quantize(const float *x, float scale, int8_t *q, int64_t n, int64_t *bad)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) && *bad < 0)
            *bad = i;
        q[i] = (int8_t)rintf(fmaxf(-2.0f, fminf(1.0f, x[i] / scale)));
    }
}
