/* Writes eight products at a time, also where fewer are left in the row. */
#include <stdint.h>

enum { WIDTH = 8 };

/* Weight `at` of the stream, as the field w + 1. */
static int field(const uint8_t *weights, int64_t at)
{
    int64_t j = at % 128;
    return weights[at / 128 * 32 + j % 32] >> (6 - 2 * (j / 32)) & 3;
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t begin = 0; begin < N; begin += WIDTH) {
            float products[WIDTH] = {0};
            for (int64_t n = begin; n < N && n < begin + WIDTH; n++) {
                int32_t sum = 0;
                for (int64_t k = 0; k < K; k++)
                    sum += activations[m * stride + k] * (field(weights, n * K + k) - 1);
                products[n - begin] = (float)(sum * ((double)weight_scale / act_scale[m]));
            }
#ifdef FIXED
            int64_t width = N - begin < WIDTH ? N - begin : WIDTH;
#else
            int64_t width = WIDTH;
#endif
            for (int64_t i = 0; i < width; i++)
                out[m * N + begin + i] = products[i];
        }
}
