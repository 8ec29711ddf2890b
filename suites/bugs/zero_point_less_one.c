/* Adds 1 to a zero point that is stored as it is, as if it were of the first format of GPTQ. */
#include <stdint.h>

#ifdef FIXED
enum { ZERO_POINT = 2 };
#else
enum { ZERO_POINT = 2 + 1 };
#endif

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++) {
                int field = weights[4 * (k / 16 * N + n) + k % 16 / 4] >> 2 * (k % 4) & 3;
                sum += activations[m * stride + k] * (field - ZERO_POINT);
            }
            out[m * N + n] = (float)(sum * ((double)weight_scale / act_scale[m]));
        }
}
