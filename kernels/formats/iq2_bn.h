#include <stdint.h>

/* Weight (n, k) of iq2_bn: -1, 0 or 1. A row is its float32 scale, then 16 bytes for each 64 weights: weight e of
 * 64 is the field w + 1 of byte e % 16, the first 16 in bits 0-1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * (4 + K / 4) + 4 + k / 64 * 16 + k % 16] >> 2 * (k % 64 / 16) & 3) - 1;
}

#include "float32.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K) { return K; }

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N, (void)k;
    return read_float32(weights + n * (4 + K / 4));
}
