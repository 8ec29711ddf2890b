/* Reads blocks of 128 weights in 32 bytes, as x86 packs them, as blocks of 64 in 16 bytes, as ARM does. */
#include <stdint.h>

#ifdef FIXED
enum { BLOCK = 128 };
#else
enum { BLOCK = 64 };
#endif

static int field(const uint8_t *weights, int64_t at)
{
    int64_t j = at % BLOCK;
    return weights[at / BLOCK * (BLOCK / 4) + j % (BLOCK / 4)] >> (6 - 2 * (j / (BLOCK / 4))) & 3;
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
            out[m * N + n] = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
}
