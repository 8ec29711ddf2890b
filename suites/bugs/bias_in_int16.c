/* Adds the bias of MLX, -scale for each activation, as a sum of the activations in their own narrow type. */
#include <stdint.h>

#ifdef FIXED
typedef int32_t total;
#else
typedef int16_t total;
#endif

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        total bias = 0;
        for (int64_t k = 0; k < K; k++)
            bias = (total)(bias + activations[m * stride + k]);
        for (int64_t n = 0; n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += activations[m * stride + k] * (weights[n * (K / 4) + k / 4] >> 2 * (k % 4) & 3);
            out[m * N + n] = (float)((sum - bias) * ((double)weight_scale / act_scale[m]));
        }
    }
}
