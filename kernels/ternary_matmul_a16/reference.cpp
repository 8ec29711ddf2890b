// An independent reference of ternary_matmul_a16.

#include "../peers/reference/reference.h"

namespace {

// 16-bit activations times row16: `store` gets the place and the sum, in float64.
void float_ternary_product(
    const uint16_t *activations, const uint8_t *weights, Narrow type, int64_t M, int64_t N, int64_t K,
    const StoreAt &store)
{
    std::vector<double> wide(static_cast<size_t>(M * K));
    for (int64_t i = 0; i < M * K; ++i)
        wide[size_t(i)] = widened(activations[i], type);
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<double> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k)
                row[size_t(k)] = of_row16(weights, n, k, N, K);
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += wide[size_t(m * K + k)] * row[size_t(k)];
                store(m * N + n, sum);
            }
        }
    });
}

// The same with row16_g: words as in row16, then a float16 scale of the first group of every row, padded to whole 8
// rows, of the second, and so on.
void float_grouped_product(
    const uint16_t *activations, const uint8_t *weights, int64_t group, Narrow type, int64_t M, int64_t N, int64_t K,
    const StoreAt &store)
{
    std::vector<double> wide(static_cast<size_t>(M * K));
    for (int64_t i = 0; i < M * K; ++i)
        wide[size_t(i)] = widened(activations[i], type);
    const uint8_t *const scales = weights + N * row16_bytes(K);
    side_by_side(N, M * K, [&](int64_t begin, int64_t end) {
        std::vector<double> row(static_cast<size_t>(K));
        for (int64_t n = begin; n < end; ++n) {
            for (int64_t k = 0; k < K; ++k) {
                uint16_t half;
                std::memcpy(&half, scales + 2 * (k / group * ((N + 7) / 8 * 8) + n), 2);
                row[size_t(k)] = of_row16(weights, n, k, N, K) * double(widened(half, kHalf));
            }
            for (int64_t m = 0; m < M; ++m) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += wide[size_t(m * K + k)] * row[size_t(k)];
                store(m * N + n, sum);
            }
        }
    });
}

}  // namespace

extern "C" {

#define TERNARY_MATMUL_A16(name, type) \
    void ternary_matmul_##name##_float32( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, float *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = float(sum * double(weight_scale)); \
        }); \
    } \
    void ternary_matmul_##name##_bfloat16( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum * double(weight_scale), kBrain); \
        }); \
    } \
    void ternary_matmul_##name##_float16( \
        const uint16_t *activations, const uint8_t *weights, float weight_scale, uint16_t *out, int64_t M, int64_t N, \
        int64_t K) \
    { \
        float_ternary_product(activations, weights, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum * double(weight_scale), kHalf); \
        }); \
    }
TERNARY_MATMUL_A16(bf16, kBrain)
TERNARY_MATMUL_A16(fp16, kHalf)

#define GROUPED_A16(name, type, group) \
    void ternary_matmul_##name##_row16_g##group##_float32( \
        const uint16_t *activations, const uint8_t *weights, float *out, int64_t M, int64_t N, int64_t K) \
    { \
        float_grouped_product( \
            activations, weights, group, type, M, N, K, [&](int64_t at, double sum) { out[at] = float(sum); }); \
    } \
    void ternary_matmul_##name##_row16_g##group##_bfloat16( \
        const uint16_t *activations, const uint8_t *weights, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        float_grouped_product(activations, weights, group, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum, kBrain); \
        }); \
    } \
    void ternary_matmul_##name##_row16_g##group##_float16( \
        const uint16_t *activations, const uint8_t *weights, uint16_t *out, int64_t M, int64_t N, int64_t K) \
    { \
        float_grouped_product(activations, weights, group, type, M, N, K, [&](int64_t at, double sum) { \
            out[at] = narrowed(sum, kHalf); \
        }); \
    }
#define GROUPED_A16_OF(group) GROUPED_A16(bf16, kBrain, group) GROUPED_A16(fp16, kHalf, group)
GROUPED_A16_OF(32)
GROUPED_A16_OF(64)
GROUPED_A16_OF(128)
GROUPED_A16_OF(256)

}  // extern "C"
