#include <stdint.h>

/* Weight (n, k) of bitnet_rs_32: the field at shift 2 * (k % 4) of byte k / 4 of a row; 3, 0 and 1 are -1, 0 and
 * 1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int field = weights[n * (K / 4) + k / 4] >> 2 * (k % 4) & 3;
    return field == 3 ? -1 : field;
}

#include "one_scale.h"
