#include <math.h>
#include <stdint.h>

#include "stq.h"

/* Weight (n, k) of stq1_0_quads: -1, 0 or 1. A row is blocks of 42 bytes for 256 weights, in which four weights that are
 * adjacent form a group. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int e = (int)(k % 256);
    return code_of(weights + (n * (K / 256) + k / 256) * 42, e / 4, e % 4);
}
