#include <stdint.h>

/* Weight (n, k) of gpu_int2: -1, 0 or 1. Tiles of 16 rows and 32 columns, 32 little-endian words each; a word
 * holds 16 columns of a row, column i as the field w + 2 at shift 8 * (i % 4) + 2 * (i / 4). */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t tile = n / 16 * (K / 32) + k / 32, word = 16 * (n % 16 / 8) + 8 * (k % 32 / 16) + n % 8;
    return (weights[4 * (32 * tile + word) + k % 4] >> 2 * (k % 16 / 4) & 3) - 2;
}

#include "one_scale.h"
