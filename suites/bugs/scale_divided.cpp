// Divides by the weights' scale where it has to multiply with it.
#include <cstdint>

// Weight `at` of the stream.
static int code(const uint8_t *weights, int64_t at)
{
    int64_t j = at % 128;
    return (weights[at / 128 * 32 + j % 32] >> (6 - 2 * (j / 32)) & 3) - 1;
}

extern "C" void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        double act = act_scale[m];
#ifdef FIXED
        double factor = weight_scale / act;
#else
        double factor = 1 / (weight_scale * act);
#endif
        for (int64_t n = 0; n < N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += activations[m * stride + k] * code(weights, n * K + k);
            out[m * N + n] = static_cast<float>(sum * factor);
        }
    }
}
