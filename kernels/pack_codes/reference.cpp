// An independent reference of pack_codes.

#include "../peers/reference/reference.h"

extern "C" {

void pack_codes_i2_s_x86(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    std::memset(packed, 0, size_t(N * K / 4 + 32));
    for (int64_t i = 0; i < N * K; ++i)
        put(packed, i2_s_x86(i), codes[i]);
    std::memcpy(packed + N * K / 4, scales, 4);
}

void pack_codes_row16(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    const int64_t row = row16_bytes(K);
    std::memset(packed, 0, size_t(N * row + 64));
    for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < 4 * row; ++k)
            put(packed + n * row, row16(k), k < K ? codes[n * K + k] : 0);
    std::memcpy(packed + N * row, scales, 4);
}

void pack_codes_tq2_0(const int8_t *codes, const float *scales, uint8_t *packed, int64_t N, int64_t K)
{
    std::memset(packed, 0, size_t(N * K / 256 * 66));
    for (int64_t i = 0; i < N * K; ++i)
        put(packed, tq2_0(i), codes[i]);
    for (int64_t b = 0; b < N * K / 256; ++b)
        put_half(packed + 66 * b + 64, scales[b]);
}

}  // extern "C"
