#include <math.h>
#include <stdint.h>

/* Weight (n, k) of tile64_g128: -1 to 2. A tile is 64 rows. Of each 128 columns it has 128 bytes with the float16 scale
 * of each row, then 64 bytes for each 4 columns: byte 4 * r + c holds column c of the rows r, r + 16, r + 32 and r + 48
 * in bits 0-1, 2-3, 4-5 and 6-7, as the field w + 1. */
DECODE const uint8_t *group_of(const uint8_t *weights, int64_t K, int64_t n, int64_t k)
{
    return weights + (n / 64 * (K / 128) + k / 128) * (128 + 16 * 128);
}

DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t row = n % 64;
    return (group_of(weights, K, n, k)[128 + k % 128 / 4 * 64 + row % 16 * 4 + k % 4] >> 2 * (row / 16) & 3) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return 128;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return read_float16(group_of(weights, K, n, k) + n % 64 * 2);
}
