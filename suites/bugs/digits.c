/* Reads the base-3 digits of a byte as neighbours; they are weights 16, 8 or 2 apart. */
#include <math.h>
#include <stdint.h>

enum { BLOCK = 128, BYTES = 28 };

static int digit(const uint8_t *byte, int place)
{
    static const int power[] = {1, 3, 9, 27, 81};
    return ((*byte * power[place] & 255) * 3 >> 8) - 1;
}

static int code(const uint8_t *block, int e)
{
    int first = e < 80 ? 0 : e < 120 ? 80 : 120, width = e < 80 ? 16 : e < 120 ? 8 : 2;
    const uint8_t *part = block + (e < 80 ? 0 : e < 120 ? 16 : 24);
#ifdef FIXED
    return digit(part + (e - first) % width, (e - first) / width);
#else
    int digits = e < 120 ? 5 : 4;
    return digit(part + (e - first) / digits, (e - first) % digits);
#endif
}

static float float16(const uint8_t *at)
{
    int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double total = 0;
            for (int64_t b = 0; b < K / BLOCK; b++) {
                const uint8_t *block = weights + (n * (K / BLOCK) + b) * BYTES;
                int32_t sum = 0;
                for (int e = 0; e < BLOCK; e++)
                    sum += activations[m * stride + b * BLOCK + e] * code(block, e);
                total += (double)sum * float16(block + 26);
            }
            out[m * N + n] = (float)(total * ((double)weight_scale / act_scale[m]));
        }
}
