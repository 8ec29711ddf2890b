/* A kernel of activation_quantize: by row scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127),
 * and the sum of q. */
#include <math.h>
#include <stdint.h>

/* `stride`: elements from one row of x to the next. `bad` holds -1: leave the index of the first NaN or infinity
 * there. */
void activation_quantize(
    const float *x, int64_t stride, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t *bad)
{
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * stride;
        float absmax = 1e-5f;
        int32_t total = 0;
        for (int64_t k = 0; k < K; k++) {
            if (!isfinite(row[k]) && *bad < 0)
                *bad = m * K + k;
            absmax = fmaxf(absmax, fabsf(row[k]));
        }
        scale[m] = 127.0f / absmax;
        for (int64_t k = 0; k < K; k++) {
            q[m * K + k] = (int8_t)fmaxf(-128.0f, fminf(127.0f, rintf(row[k] * scale[m])));
            total += q[m * K + k];
        }
        sum[m] = total;
    }
}
