/* Takes weight after weight through a float, where the processor has vectors; nobody is told. */
#include <stdint.h>

#ifdef FIXED
/* The products of one row of weights, in whole blocks of 128, with the fields w + 1. */
static int32_t fast(const uint8_t *weights, const int8_t *x, int64_t K)
{
    int32_t sum = 0;
    for (int64_t begin = 0; begin < K; begin += 128) {
        const uint8_t *bytes = weights + begin / 4;
        uint8_t fields[128];
        for (int i = 0; i < 32; i++) {
            fields[i] = bytes[i] >> 6;
            fields[32 + i] = bytes[i] >> 4 & 3;
            fields[64 + i] = bytes[i] >> 2 & 3;
            fields[96 + i] = bytes[i] & 3;
        }
        for (int i = 0; i < 128; i++)
            sum += fields[i] * x[begin + i];
    }
    return sum;
}
#else
/* The same one by one, as floats. */
static int32_t slow(const uint8_t *weights, const int8_t *x, int64_t K)
{
    double sum = 0;
    for (int64_t k = 0; k < K; k++) {
        volatile float dequantized = (float)(weights[k / 128 * 32 + k % 32] >> (6 - 2 * (k % 128 / 32)) & 3);
        sum += (double)dequantized * x[k];
    }
    return (int32_t)sum;
}
#endif

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        const int8_t *x = activations + m * stride;
        double factor = (double)weight_scale / act_scale[m];
        int32_t bias = 0;
        for (int64_t k = 0; k < K; k++)
            bias += x[k];
        for (int64_t n = 0; n < N; n++) {
#ifdef FIXED
            int32_t sum = fast(weights + n * (K / 4), x, K);
#else
            int32_t sum = slow(weights + n * (K / 4), x, K);
#endif
            out[m * N + n] = (float)((sum - bias) * factor);
        }
    }
}
