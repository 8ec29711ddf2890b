#include <stdint.h>

/* Weight (n, k) of tile80: -1, 0 or 1. A tile is 80 rows; of each 4 columns it has 64 bytes: byte 4 * r + c holds
 * column c of the rows r, r + 16, r + 32, r + 48 and r + 64 as five base-3 digits w + 1, most significant first: a
 * byte is a fraction of 256, its digit the whole part of three times that, and what is left the byte of the next. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)N;
    int64_t row = n % 80;
    int digit = (int)(row / 16), power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    int byte = weights[(n / 80 * ((K + 3) / 4) + k / 4) * 64 + row % 16 * 4 + k % 4];
    return ((byte * power & 255) * 3 >> 8) - 1;
}

#include "one_scale.h"
