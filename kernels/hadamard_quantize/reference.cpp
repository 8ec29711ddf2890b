// An independent reference of hadamard_quantize and hadamard_transform: sums of all terms of a block in double, with the
// sign of each term from its two indices.

#include "../peers/reference/reference.h"

namespace {

std::vector<double> rotated(const float *x, const int8_t *signs, int64_t M, int64_t K, int64_t block)
{
    std::vector<double> y(size_t(M * K), 0.0);
    for (int64_t at = 0; at < M * K; ++at) {
        const int64_t place = at % K % block, begin = at - place;
        double sum = 0;
        for (int64_t i = 0; i < block; ++i) {
            const double term = double(x[begin + i]) * double(signs[begin % K + i]);
            bool negative = false;
            for (int64_t common = i & place; common; common /= 2)
                negative ^= common % 2;
            sum += negative ? -term : term;
        }
        y[size_t(at)] = double(float(sum * double(float(1 / std::sqrt(double(block))))));
    }
    return y;
}

void quantize(
    const float *x, const int8_t *signs, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t block)
{
    const std::vector<double> y = rotated(x, signs, M, K, block);
    for (int64_t m = 0; m < M; ++m) {
        float largest = 1e-5f;
        bool finite = true;
        for (int64_t k = 0; k < K; ++k) {
            finite = finite && std::isfinite(y[size_t(m * K + k)]);
            largest = std::max(largest, float(std::fabs(y[size_t(m * K + k)])));
        }
        scale[m] = finite ? 127.0f / largest : std::nanf("");
        int64_t total = 0;
        for (int64_t k = 0; k < K; ++k) {
            const float product = finite ? float(y[size_t(m * K + k)]) * scale[m] : 0.0f;
            q[m * K + k] = int8_t(clamped(std::nearbyintf(product), -128.0f, 127.0f));
            total += q[m * K + k];
        }
        sum[m] = int32_t(total);
    }
}

void transform(const float *x, const int8_t *signs, float *out, int64_t M, int64_t K, int64_t block)
{
    const std::vector<double> y = rotated(x, signs, M, K, block);
    std::transform(y.begin(), y.end(), out, [](double value) { return float(value); });
}

void transform(const float *x, const int8_t *signs, uint16_t *out, int64_t M, int64_t K, int64_t block, Narrow type)
{
    const std::vector<double> y = rotated(x, signs, M, K, block);
    std::transform(y.begin(), y.end(), out, [type](double value) { return narrowed(value, type); });
}

} // namespace

extern "C" {

void hadamard_quantize(
    const float *x, const int8_t *signs, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t block)
{
    quantize(x, signs, q, scale, sum, M, K, block);
}

void hadamard_quantize_float16(
    const uint16_t *x, const int8_t *signs, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t block)
{
    quantize(all_widened(x, M * K, kHalf).data(), signs, q, scale, sum, M, K, block);
}

void hadamard_quantize_bfloat16(
    const uint16_t *x, const int8_t *signs, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t block)
{
    quantize(all_widened(x, M * K, kBrain).data(), signs, q, scale, sum, M, K, block);
}

void hadamard_transform_float32(const float *x, const int8_t *signs, float *y, int64_t M, int64_t K, int64_t block)
{
    transform(x, signs, y, M, K, block);
}

void hadamard_transform_float16(const float *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(x, signs, y, M, K, block, kHalf);
}

void hadamard_transform_bfloat16(const float *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(x, signs, y, M, K, block, kBrain);
}

void hadamard_transform_float16_float32(
    const uint16_t *x, const int8_t *signs, float *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kHalf).data(), signs, y, M, K, block);
}

void hadamard_transform_float16_float16(
    const uint16_t *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kHalf).data(), signs, y, M, K, block, kHalf);
}

void hadamard_transform_float16_bfloat16(
    const uint16_t *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kHalf).data(), signs, y, M, K, block, kBrain);
}

void hadamard_transform_bfloat16_float32(
    const uint16_t *x, const int8_t *signs, float *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kBrain).data(), signs, y, M, K, block);
}

void hadamard_transform_bfloat16_float16(
    const uint16_t *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kBrain).data(), signs, y, M, K, block, kHalf);
}

void hadamard_transform_bfloat16_bfloat16(
    const uint16_t *x, const int8_t *signs, uint16_t *y, int64_t M, int64_t K, int64_t block)
{
    transform(all_widened(x, M * K, kBrain).data(), signs, y, M, K, block, kBrain);
}

} // extern "C"
