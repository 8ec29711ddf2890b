/* A kernel of hadamard_quantize: each row times signs and, in blocks, the Walsh-Hadamard matrix over the root of the
 * block; then scale = 127 / max(absmax, 1e-5), q = clamp(rint(y * scale), -128, 127), and the sum of q. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Rotates a block into y. */
static void rotate(const float *x, const int8_t *signs, float *y, int64_t block)
{
    const float factor = (float)(1 / sqrt((double)block));
    for (int64_t i = 0; i < block; i++)
        y[i] = x[i] * (float)signs[i];
    for (int64_t h = 1; h < block; h *= 2)
        for (int64_t begin = 0; begin < block; begin += 2 * h)
            for (int64_t i = begin; i < begin + h; i++) {
                const float a = y[i], b = y[i + h];
                y[i] = a + b;
                y[i + h] = a - b;
            }
    for (int64_t i = 0; i < block; i++)
        y[i] *= factor;
}

/* `stride`: elements from one row of x to the next. A row with a NaN or infinity gets the scale NaN and codes of 0. */
void hadamard_quantize(
    const float *x, int64_t stride, const int8_t *signs, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K,
    int64_t block)
{
    float y[1024];
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * stride;
        float absmax = 1e-5f;
        int finite = 1;
        int32_t total = 0;
        for (int64_t at = 0; at < K; at += block) {
            rotate(row + at, signs + at, y, block);
            for (int64_t i = 0; i < block; i++) {
                finite &= isfinite(y[i]) != 0;
                absmax = fmaxf(absmax, fabsf(y[i]));
            }
        }
        scale[m] = finite ? 127.0f / absmax : NAN;
        memset(q + m * K, 0, (size_t)K);
        for (int64_t at = 0; finite && at < K; at += block) {
            rotate(row + at, signs + at, y, block);
            for (int64_t i = 0; i < block; i++) {
                q[m * K + at + i] = (int8_t)fmaxf(-128.0f, fminf(127.0f, rintf(y[i] * scale[m])));
                total += q[m * K + at + i];
            }
        }
        sum[m] = total;
    }
}
