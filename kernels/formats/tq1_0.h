#include <math.h>
#include <stdint.h>

/* Weight (n, k) of tq1_0: -1, 0 or 1. A row is blocks of 54 bytes for 256 weights. The first 160 are five base-3
 * digits to a byte in 32 bytes, the next 80 in 16 bytes, the last 16 are four to a byte in 4 bytes; then comes the
 * block's scale. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    const uint8_t *block = weights + (n * (K / 256) + k / 256) * 54;
    int e = (int)(k % 256), byte, digit;
    if (e < 160)
        byte = e % 32, digit = e / 32;
    else if (e < 240)
        byte = 32 + e % 16, digit = (e - 160) / 16;
    else
        byte = 48 + e % 4, digit = (e - 240) / 4;
    int power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return ((block[byte] * power & 255) * 3 >> 8) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return 256;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return read_float16(weights + (n * (K / 256) + k / 256) * 54 + 52);
}
