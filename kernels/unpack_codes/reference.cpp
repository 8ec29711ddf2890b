// An independent reference of unpack_codes.

#include "../peers/reference/reference.h"

extern "C" {

void unpack_codes_i2_s_x86(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < N * K; ++i)
        codes[i] = int8_t(taken(packed, i2_s_x86(i)));
    std::memcpy(scales, packed + N * K / 4, 4);
}

void unpack_codes_row16(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k)
            codes[n * K + k] = int8_t(of_row16(packed, n, k, N, K));
    std::memcpy(scales, packed + N * row16_bytes(K), 4);
}

void unpack_codes_tq2_0(const uint8_t *packed, int8_t *codes, float *scales, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < N * K; ++i)
        codes[i] = int8_t(taken(packed, tq2_0(i)));
    for (int64_t b = 0; b < N * K / 256; ++b) {
        uint16_t half;
        std::memcpy(&half, packed + 66 * b + 64, 2);
        scales[b] = widened(half, kHalf);
    }
}

}  // extern "C"
