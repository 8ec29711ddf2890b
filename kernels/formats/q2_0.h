#include <math.h>
#include <stdint.h>

/* Weight (n, k) of q2_0: -1 to 2. A row is blocks of 18 bytes for 64 weights: the block's float16 scale, then
 * weight e as the field w + 1 at shift 2 * (e % 4) of byte e / 4. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return (weights[(n * (K / 64) + k / 64) * 18 + 2 + k % 64 / 4] >> 2 * (k % 4) & 3) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return 64;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return read_float16(weights + (n * (K / 64) + k / 64) * 18);
}
