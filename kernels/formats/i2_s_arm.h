#include <stdint.h>

/* Weight (n, k) of i2_s_arm: -1, 0 or 1. The matrix is one stream, rows one after the other; of each 64 weights
 * weight j is the field w + 1 of byte j % 16, the first 16 in bits 6-7, the last in bits 0-1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t at = n * K + k, j = at % 64;
    return (weights[at / 64 * 16 + j % 16] >> (6 - 2 * (j / 16)) & 3) - 1;
}

#include "one_scale.h"
