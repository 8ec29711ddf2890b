#include <stdint.h>

/* Weight (n, k) of compressed_tensors_2: -1, 0 or 1. A row is whole words of 16 weights, weight k the field w + 2 at
 * shift 2 * (k % 4) of its byte k / 4. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[n * ((K + 15) / 16 * 4) + k / 4] >> 2 * (k % 4) & 3) - 2;
}

#include "one_scale.h"
