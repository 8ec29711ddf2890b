/* As int16_sums.c, in the eight lanes of the path for ARM without dot products, brought to int32 every 2048 columns: a
 * lane overflows from 1040 columns on. */
#include <stdint.h>

#ifdef FIXED
enum { FLUSH = 64 };
#else
enum { FLUSH = 2048 };
#endif

/* Weight `at` of the stream, as the field w + 1. */
static int field(const uint8_t *weights, int64_t at)
{
    int64_t j = at % 64;
    return weights[at / 64 * 16 + j % 16] >> (6 - 2 * (j / 16)) & 3;
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            int32_t total = 0, bias = 0;
            int16_t lanes[8] = {0};
            for (int64_t k = 0; k < K; k++) {
                int x = activations[m * stride + k];
                lanes[k % 8] = (int16_t)(lanes[k % 8] + x * field(weights, n * K + k));
                bias += x;
                if (k % FLUSH == FLUSH - 1 || k == K - 1)
                    for (int lane = 0; lane < 8; lane++) {
                        total += lanes[lane];
                        lanes[lane] = 0;
                    }
            }
            out[m * N + n] = (float)((total - bias) * ((double)weight_scale / act_scale[m]));
        }
}
