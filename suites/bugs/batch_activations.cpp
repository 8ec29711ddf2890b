// Four rows of activations at a time: a product with more of them reads the first four again and again.
#include <cstdint>

namespace {

constexpr int64_t ROWS = 4;

// Weight `at` of the stream.
int code(const uint8_t *weights, int64_t at)
{
    int64_t j = at % 128;
    return (weights[at / 128 * 32 + j % 32] >> (6 - 2 * (j / 32)) & 3) - 1;
}

} // namespace

extern "C" void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t begin = 0; begin < M; begin += ROWS)
        for (int64_t n = 0; n < N; n++)
            for (int64_t m = begin; m < M && m < begin + ROWS; m++) {
#ifdef FIXED
                const int8_t *row = activations + m * stride;
#else
                const int8_t *row = activations + (m - begin) * stride;
#endif
                int32_t sum = 0;
                for (int64_t k = 0; k < K; k++)
                    sum += row[k] * code(weights, n * K + k);
                out[m * N + n] = static_cast<float>(sum * (static_cast<double>(weight_scale) / act_scale[m]));
            }
}
