#include <stdint.h>

/* Weight (n, k) of i2_s_x86_r4: -1, 0 or 1. A byte has the fields w + 1 of four rows in one column, the first row
 * in bits 6-7. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n / 4 * K + k] >> (6 - 2 * (n % 4)) & 3) - 1;
}

#include "one_scale.h"
