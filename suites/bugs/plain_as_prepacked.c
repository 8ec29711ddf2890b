/* Reads weights in sequence as weights in the order of fpA_intB kernels. */
#include <stdint.h>

static int field(const uint8_t *weights, int64_t K, int64_t n, int64_t k)
{
#ifdef FIXED
    return weights[n * (K / 4) + k / 4] >> 2 * (k % 4) & 3;
#else
    int64_t word = 32 * (n / 8 * (K / 64) + k / 64) + 4 * (n % 8) + k % 8 / 2, place = 8 * (k % 2) + k % 64 / 8;
    return weights[4 * word + place / 4] >> 2 * (place % 4) & 3;
#endif
}

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += activations[m * stride + k] * (field(weights, K, n, k) - 1);
            out[m * N + n] = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
}
