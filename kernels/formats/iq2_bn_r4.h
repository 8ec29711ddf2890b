#include <stdint.h>

/* Weight (n, k) of iq2_bn_r4: -1, 0 or 1. Four rows at a time: their four float32 scales, then 64 bytes for each
 * 64 columns; byte 16 * l + 4 * r + i has column 16 * l + 4 * s + i of row r, as the field w + 1, at shift 2 * s. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t c = k % 64;
    return (weights[n / 4 * (16 + K) + 16 + k / 64 * 64 + c / 16 * 16 + n % 4 * 4 + c % 4] >> 2 * (c % 16 / 4) & 3) - 1;
}

#include "float32.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K) { return K; }

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N, (void)k;
    return read_float32(weights + n / 4 * (16 + K) + n % 4 * 4);
}
