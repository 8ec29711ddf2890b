#include <stdint.h>

/* Weight (n, k) of ort_q2_sm80: -1, 0 or 1. Tiles of 8 rows and 64 columns, 32 little-endian words each. Word
 * 4 * (n % 8) + k % 8 / 2 holds 16 columns of a row: column k is the field w + 1 at place 8 * (k % 2) + k % 64 / 8. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t word = 32 * (n / 8 * (K / 64) + k / 64) + 4 * (n % 8) + k % 8 / 2, place = 8 * (k % 2) + k % 64 / 8;
    return (weights[4 * word + place / 4] >> 2 * (place % 4) & 3) - 1;
}

#include "one_scale.h"
