#include <stdint.h>

/* Weight (n, k) of gptq_2: -1, 0 or 1. Rows of N little-endian words, word (k / 16, n) with the 16 weights of row n:
 * the field w + 2 at place k % 16 from the lowest bits up. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)K;
    return (weights[4 * (k / 16 * N + n) + k % 16 / 4] >> 2 * (k % 4) & 3) - 2;
}

#include "one_scale.h"
