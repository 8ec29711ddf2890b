#include <stdint.h>

/* Weight (n, k) of row16: -1, 0 or 1. Rows are padded to whole 64 weights; weight e of 16 is the field w + 1 at
 * shift 8 * (e % 4) + 2 * (e / 4) of a little-endian word. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * ((K + 63) / 64 * 16) + k / 16 * 4 + k % 4] >> 2 * (k % 16 / 4) & 3) - 1;
}

#include "one_scale.h"
