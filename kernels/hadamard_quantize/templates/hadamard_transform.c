/* A kernel of hadamard_transform: each row times signs and, in blocks, the Walsh-Hadamard matrix over the root of the
 * block. */
#include <math.h>
#include <stdint.h>

/* `stride`: elements from one row of x to the next. */
void hadamard_transform(
    const float *x, int64_t stride, const int8_t *signs, float *y, int64_t M, int64_t K, int64_t block)
{
    const float factor = (float)(1 / sqrt((double)block));
    for (int64_t m = 0; m < M; m++)
        for (int64_t at = 0; at < K; at += block) {
            float *out = y + m * K + at;
            for (int64_t i = 0; i < block; i++)
                out[i] = x[m * stride + at + i] * (float)signs[at + i];
            for (int64_t h = 1; h < block; h *= 2)
                for (int64_t begin = 0; begin < block; begin += 2 * h)
                    for (int64_t i = begin; i < begin + h; i++) {
                        const float a = out[i], b = out[i + h];
                        out[i] = a + b;
                        out[i + h] = a - b;
                    }
            for (int64_t i = 0; i < block; i++)
                out[i] *= factor;
        }
}
