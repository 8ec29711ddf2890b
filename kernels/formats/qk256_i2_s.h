#include <stdint.h>

/* Weight (n, k) of qk256_i2_s: -1 to 2. The matrix is one stream, rows one after the other; of each 128 weights
 * weight j is the field w + 1 of byte j % 32, the first 32 in bits 6-7, the last in bits 0-1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t at = n * K + k, j = at % 128;
    return (weights[at / 128 * 32 + j % 32] >> (6 - 2 * (j / 32)) & 3) - 1;
}

#include "one_scale.h"
