// An independent reference of ternary_quantize.

#include "../peers/reference/reference.h"

namespace {

// Scales and codes of ternary_quantize, blocks along the flat array.
std::vector<int> block_codes(const float *x, float *scales, int64_t n, int64_t block)
{
    std::vector<int> codes(static_cast<size_t>(n));
    for (int64_t start = 0, b = 0; start < n; start += block, ++b) {
        const int64_t end = std::min(n, start + block);
        float largest = 1e-8f;
        for (int64_t i = start; i < end; ++i)
            largest = std::max(largest, std::fabs(x[i]));
        scales[b] = largest;
        for (int64_t i = start; i < end; ++i) {
            const double half = 0.5 * double(largest);
            codes[size_t(i)] = (double(x[i]) > half) - (double(x[i]) < -half);
        }
    }
    return codes;
}

}  // namespace

extern "C" {

void ternary_quantize_none(const float *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < n; ++i)
        codes[i] = int8_t(found[size_t(i)]);
}

void ternary_quantize_float16(const uint16_t *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    ternary_quantize_none(all_widened(x, n, kHalf).data(), codes, scales, n, block);
}

void ternary_quantize_bfloat16(const uint16_t *x, int8_t *codes, float *scales, int64_t n, int64_t block)
{
    ternary_quantize_none(all_widened(x, n, kBrain).data(), codes, scales, n, block);
}

void ternary_quantize_i2_s_x86(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 127) / 128 * 128; ++i)
        put(codes, i2_s_x86(i), i < n ? found[size_t(i)] : 0);
}

void ternary_quantize_row16(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 63) / 64 * 64; ++i)
        put(codes, row16(i), i < n ? found[size_t(i)] : 0);
}

// Returns 1 for another block than TQ2_0's.
int ternary_quantize_tq2_0(const float *x, uint8_t *codes, float *scales, int64_t n, int64_t block)
{
    if (block != 256)
        return 1;
    const std::vector<int> found = block_codes(x, scales, n, block);
    for (int64_t i = 0; i < (n + 255) / 256 * 256; ++i)
        put(codes, tq2_0(i), i < n ? found[size_t(i)] : 0);
    for (int64_t b = 0; b < (n + 255) / 256; ++b)
        put_half(codes + 66 * b + 64, scales[b]);
    return 0;
}

}  // extern "C"
