/* ternary_matmul straight from the bytes of ggml's TQ2_0 (kernels/formats/tq2_0.py).
 *
 * A group of 256 weights is 66 bytes: two halves of 32, in which byte b holds, from the lowest bits up, the codes w
 * + 1 of the weights b, 32 + b, 64 + b and 96 + b of its half; then the scale d as float16. So what a shift brings
 * down to the lowest bits meets 32 activations side by side, of each half. Groups follow each other without a gap,
 * so no group but the first has an alignment past 2. */
#ifndef TM_TQ2_0_H
#define TM_TQ2_0_H

#include "../groups.h"

enum { TM_TQ2_0_GROUP = 256, TM_TQ2_0_HALF = 128, TM_TQ2_0_SCALE = 64, TM_TQ2_0_BYTES = 66 };

TM_KERNELS(ternary_matmul_tq2_0);

/* A group's scale as it is stored. */
static inline uint16_t tm_tq2_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group + TM_TQ2_0_SCALE, sizeof bits);
    return bits;
}

#endif
