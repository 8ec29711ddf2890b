#include <math.h>
#include <stdint.h>

/* Weight (n, k) of ptq1_0: -1, 0 or 1. A row is blocks of 28 bytes for 128 weights. The first 80 are five base-3
 * digits to a byte in 16 bytes, the next 40 in 8 bytes, the last 8 are four to a byte in 2 bytes; then comes the
 * block's scale. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    const uint8_t *block = weights + (n * (K / 128) + k / 128) * 28;
    int e = (int)(k % 128), byte, digit;
    if (e < 80)
        byte = e % 16, digit = e / 16;
    else if (e < 120)
        byte = 16 + (e - 80) % 8, digit = (e - 80) / 8;
    else
        byte = 24 + e % 2, digit = (e - 120) / 2;
    int power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return ((block[byte] * power & 255) * 3 >> 8) - 1;
}

#include "float16.h"

/* How many columns of a row share a scale. */
DECODE int64_t scale_columns(int64_t K)
{
    (void)K;
    return 128;
}

/* The scale of the weight (n, k). */
DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    return read_float16(weights + (n * (K / 128) + k / 128) * 28 + 26);
}
