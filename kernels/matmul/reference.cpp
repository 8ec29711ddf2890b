// An independent reference of matmul.

#include "../peers/reference/reference.h"

namespace {

// Each element is summed along k; a row of c at a time, so that b is read along its rows.
template <class Float, class Read>
void float_product(const Float *a, const Float *b, float *c, int64_t M, int64_t N, int64_t K, Read read)
{
    std::vector<double> wide(static_cast<size_t>(K * N));
    for (int64_t i = 0; i < K * N; ++i)
        wide[size_t(i)] = read(b[i]);
    side_by_side(M, N * K, [&](int64_t begin, int64_t end) {
        std::vector<double> sums(static_cast<size_t>(N));
        for (int64_t m = begin; m < end; ++m) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (int64_t k = 0; k < K; ++k) {
                const double left = read(a[m * K + k]);
                for (int64_t n = 0; n < N; ++n)
                    sums[size_t(n)] += left * wide[size_t(k * N + n)];
            }
            for (int64_t n = 0; n < N; ++n)
                c[m * N + n] = float(sums[size_t(n)]);
        }
    });
}

}  // namespace

extern "C" {

void matmul_fp32(const float *a, const float *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](float x) { return double(x); });
}

void matmul_fp16(const uint16_t *a, const uint16_t *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](uint16_t x) { return double(widened(x, kHalf)); });
}

void matmul_bf16(const uint16_t *a, const uint16_t *b, float *c, int64_t M, int64_t N, int64_t K)
{
    float_product(a, b, c, M, N, K, [](uint16_t x) { return double(widened(x, kBrain)); });
}

}  // extern "C"
