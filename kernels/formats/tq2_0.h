#include <math.h>
#include <stdint.h>

/* Weight (n, k) of tq2_0: -1, 0 or 1. A row is blocks of 66 bytes for 256 weights: weight j of 128 is the field w
 * + 1 of byte j % 32, the first 32 in bits 0-1; then the block's scale. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t e = k % 256;
    return (weights[(n * (K / 256) + k / 256) * 66 + e / 128 * 32 + e % 32] >> 2 * (e % 128 / 32) & 3) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return 256;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return read_float16(weights + (n * (K / 256) + k / 256) * 66 + 64);
}
