#include <stdint.h>

/* Weight (n, k) of tile64: -1, 0 or 1. A tile is 64 rows; of each 4 columns it has 64 bytes: byte 4 * r + c holds
 * column c of the rows r, r + 16, r + 32 and r + 48 in bits 0-1, 2-3, 4-5 and 6-7, as the field w + 1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t row = n % 64;
    return (weights[(n / 64 * ((K + 3) / 4) + k / 4) * 64 + row % 16 * 4 + k % 4] >> 2 * (row / 16) & 3) - 1;
}

#include "one_scale.h"
