/* Every row of activations writes its products to the first row of the output. */
#include <stdint.h>

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
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += activations[m * stride + k] * (field(weights, n * K + k) - 1);
#ifdef FIXED
            float *to = out + m * N + n;
#else
            float *to = out + n;
#endif
            *to = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
}
