/* The sum that a product with unsigned fields takes off is that of the numbers and not of the codes they are rounded
 * to. */
#include <math.h>
#include <stdint.h>

void activation_quantize(
    const float *x, int64_t stride, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t *bad)
{
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * stride;
        float absmax = 1e-5f;
        int32_t codes = 0;
        double numbers = 0;
        for (int64_t k = 0; k < K; k++) {
            if (!isfinite(row[k]) && *bad < 0)
                *bad = m * K + k;
            absmax = fmaxf(absmax, fabsf(row[k]));
            numbers += row[k];
        }
        scale[m] = 127.0f / absmax;
        for (int64_t k = 0; k < K; k++) {
            q[m * K + k] = (int8_t)fmaxf(-128.0f, fminf(127.0f, rintf(row[k] * scale[m])));
            codes += q[m * K + k];
        }
#ifdef FIXED
        (void)numbers;
        sum[m] = codes;
#else
        (void)codes;
        sum[m] = (int32_t)rint(numbers * scale[m]);
#endif
    }
}
