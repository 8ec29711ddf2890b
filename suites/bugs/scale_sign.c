/* Takes the magnitude of a scale, which carries the sign of its block. */
#include <math.h>
#include <stdint.h>

enum { BLOCK = 128, BYTES = 34 };

static float float16(const uint8_t *at)
{
    int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
#ifdef FIXED
    return bits & 0x8000 ? -magnitude : magnitude;
#else
    return magnitude;
#endif
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    int64_t row = K / BLOCK * BYTES;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double total = 0;
            for (int64_t b = 0; b < K / BLOCK; b++) {
                const uint8_t *block = weights + n * row + b * BYTES;
                int32_t sum = 0;
                for (int e = 0; e < BLOCK; e++)
                    sum += activations[m * stride + b * BLOCK + e] * ((block[2 + e / 4] >> 2 * (e % 4) & 3) - 1);
                total += (double)sum * float16(block);
            }
            out[m * N + n] = (float)(total * ((double)weight_scale / act_scale[m]));
        }
}
