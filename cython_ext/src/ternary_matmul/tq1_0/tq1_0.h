/* ternary_matmul straight from the bytes of ggml's TQ1_0 (kernels/formats/tq1_0.py).
 *
 * A group of 256 weights is 54 bytes: 32 bytes of five base-3 digits each, 16 of five, 4 of four, and the scale d as
 * float16. Digit n of byte j of a part of b bytes belongs to weight n * b + j of that part, so that the digits n of
 * neighbouring bytes meet activations side by side. A byte q is a fraction of 256: digit 0 is 3 * q / 256, and 3 * q
 * modulo 256 the byte whose digit 0 is the next. Any byte gives digits 0 to 2, be it one that the format's unpacking
 * refuses or not. */
#ifndef TM_TQ1_0_H
#define TM_TQ1_0_H

#include "../groups.h"

enum {
    TM_TQ1_0_GROUP = 256,
    TM_TQ1_0_SECOND = 32, /* where the 16 bytes begin */
    TM_TQ1_0_THIRD = 48,  /* and the 4 */
    TM_TQ1_0_SCALE = 52,
    TM_TQ1_0_BYTES = 54
};

TM_KERNELS(ternary_matmul_tq1_0);

/* A group's scale as it is stored. */
static inline uint16_t tm_tq1_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group + TM_TQ1_0_SCALE, sizeof bits);
    return bits;
}

#endif
