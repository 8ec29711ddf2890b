/* A NaN is passed over by the largest magnitude, is converted to an integer, and no error is reported. */
#include <math.h>
#include <stdint.h>

void activation_quantize(
    const float *x, int64_t stride, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t *bad)
{
    (void)bad;
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * stride;
        float absmax = 1e-5f;
        int32_t total = 0;
        for (int64_t k = 0; k < K; k++) {
#ifdef FIXED
            if (!isfinite(row[k]) && *bad < 0)
                *bad = m * K + k;
#endif
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
