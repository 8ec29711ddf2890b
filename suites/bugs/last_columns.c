/* Starts floor(N / 64) tiles of 64 columns; the last columns are never written. */
#include <stdint.h>

enum { TILE = 64 };

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
#ifdef FIXED
    int64_t tiles = (N + TILE - 1) / TILE;
#else
    int64_t tiles = N / TILE;
#endif
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < tiles * TILE && n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += activations[m * stride + k] * ((weights[n * (K / 4) + k / 4] >> 2 * (k % 4) & 3) - 1);
            out[m * N + n] = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
}
