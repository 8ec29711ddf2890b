/* Scratch memory for 11 bytes of each 16 that are written to it. */
#include <stdint.h>
#include <stdlib.h>

#ifdef FIXED
enum { FACTOR = 16 };
#else
enum { FACTOR = 11 };
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
    int32_t *wide = malloc((size_t)K * FACTOR / 4);
    if (wide == NULL)
        abort();
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++)
            wide[k] = activations[m * stride + k];
        for (int64_t n = 0; n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += wide[k] * (field(weights, n * K + k) - 1);
            out[m * N + n] = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
    }
    free(wide);
}
