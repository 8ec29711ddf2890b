#include <stdint.h>

/* Weight (n, k) of bitnet_rs_32_signed: the field w + 2 at shift 2 * (k % 4) of byte k / 4 of a row; -2 to 1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * (K / 4) + k / 4] >> 2 * (k % 4) & 3) - 2;
}

#include "one_scale.h"
