/* Partial sums of 32 columns by pairs in 16 lanes of int16, brought to int32 every 4096 columns: with 2 * 127 a
 * product, a lane overflows from 2080 columns on, where signs do not cancel. */
#include <stdint.h>

#ifdef FIXED
enum { FLUSH = 128 };
#else
enum { FLUSH = 4096 };
#endif

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
        for (int64_t n = 0; n < N; n++) {
            int32_t total = 0, bias = 0;
            int16_t lanes[16] = {0};
            for (int64_t k = 0; k < K; k++) {
                int x = activations[m * stride + k];
                lanes[k % 32 / 2] = (int16_t)(lanes[k % 32 / 2] + x * field(weights, n * K + k));
                bias += x;
                if (k % FLUSH == FLUSH - 1 || k == K - 1)
                    for (int lane = 0; lane < 16; lane++) {
                        total += lanes[lane];
                        lanes[lane] = 0;
                    }
            }
            out[m * N + n] = (float)((total - bias) * ((double)weight_scale / act_scale[m]));
        }
}
