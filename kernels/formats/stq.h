/* The weight of a member of a group of four, in a block of 42 bytes of STQ1_0: 64 slots of 4 bits, even ones in the low
 * bits, 64 signs, the first in the lowest bit, and the float16 scale. */
DECODE int code_of(const uint8_t *block, int group, int member)
{
    /* By 16 * sign + slot: four fields w + 1, the first weight in the lowest bits. */
    const uint8_t fours[32] = {0xa9, 0x89, 0x29, 0x09, 0xa6, 0x86, 0x26, 0x06, 0x9a, 0x92, 0x1a,
                               0x12, 0x6a, 0x62, 0x4a, 0x42, 0x01, 0x21, 0x81, 0xa1, 0x04, 0x24,
                               0x84, 0xa4, 0x10, 0x18, 0x90, 0x98, 0x40, 0x48, 0x60, 0x68};
    int slot = block[group / 2] >> 4 * (group % 2) & 15, sign = block[32 + group / 8] >> group % 8 & 1;
    return (fours[16 * sign + slot] >> 2 * member & 3) - 1;
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
    return read_float16(weights + (n * (K / 256) + k / 256) * 42 + 40);
}
