#include <math.h>
#include <stdint.h>

/* row16 with scales of groups of GROUP weights: rows of words as in row16, padded to whole 64 weights; then the float16
 * scales, of the first group of every row, padded to whole 8 rows, and so on for each group. */

/* Weight (n, k): -1, 0 or 1. Weight e of 16 is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4) of a little-endian
 * word. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * ((K + 63) / 64 * 16) + k / 16 * 4 + k % 4] >> 2 * (k % 16 / 4) & 3) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return GROUP;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    return read_float16(weights + N * ((K + 63) / 64 * 16) + (k / GROUP * ((N + 7) / 8 * 8) + n) * 2);
}
