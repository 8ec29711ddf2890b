#include <stdint.h>

/* Weight (n, k) of hf_pack: -1, 0 or 1. With R = N / 4 rounded up, row n is the field w + 1 at shift 2 * (n / R)
 * of the packed row n % R. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    int64_t rows = (N + 3) / 4;
    return (weights[n % rows * K + k] >> 2 * (n / rows) & 3) - 1;
}

#include "one_scale.h"
