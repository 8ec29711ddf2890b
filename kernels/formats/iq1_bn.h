#include <math.h>
#include <stdint.h>

/* Weight (n, k) of iq1_bn: -1, 0 or 1. A row is its float16 scale, then 13 bytes for each 64 weights: of each 16
 * weights three bytes have five base-3 digits w + 1 each, the last byte of the 13 has the sixteenth of all four.
 * The first weight is the lowest digit. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    const uint8_t *block = weights + n * (2 + K / 64 * 13) + 2 + k / 64 * 13;
    int of16 = (int)(k % 16), quarter = (int)(k % 64 / 16);
    int byte = of16 < 15 ? 3 * quarter + of16 / 5 : 12, digit = of16 < 15 ? of16 % 5 : quarter;
    int power = digit == 0 ? 81 : digit == 1 ? 27 : digit == 2 ? 9 : digit == 3 ? 3 : 1;
    return ((block[byte] * power & 255) * 3 >> 8) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K) { return K; }

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N, (void)k;
    return read_float16(weights + n * (2 + K / 64 * 13));
}
