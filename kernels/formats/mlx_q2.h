#include <stdint.h>

/* Weight (n, k) of mlx_q2: -1, 0 or 1. A row is whole groups of 128 weights, weight k the field w + 1 at shift 2 *
 * (k % 4) of its byte k / 4. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * ((K + 127) / 128 * 32) + k / 4] >> 2 * (k % 4) & 3) - 1;
}

#include "one_scale.h"
