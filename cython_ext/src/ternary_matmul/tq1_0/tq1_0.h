/* ternary_matmul on the bytes of ggml's TQ1_0 (kernels/formats/tq1_0.py).
 *
 * A group of 256 weights is 54 bytes: 32 bytes of five base-3 digits each, 16 of five, 4 of four, and the scale d as
 * float16. Digit n of byte j of a part of b bytes belongs to weight n * b + j of that part, so the digits n of adjacent
 * bytes meet adjacent activations. A byte q is a fraction of 256: digit 0 is 3 * q / 256, and 3 * q modulo 256 is the
 * byte whose digit 0 is the next. Any byte gives digits 0 to 2, also one that the format's unpacking refuses. Page:
 * docs/kernels/tq1_0.md. */
#ifndef TM_TQ1_0_H
#define TM_TQ1_0_H

#include "../groups.h"

enum {
    TM_TQ1_0_GROUP = 256,
    TM_TQ1_0_SECOND = 32, /* where the 16 bytes begin */
    TM_TQ1_0_THIRD = 48,  /* and the 4 */
    TM_TQ1_0_SCALE = 52,
    TM_TQ1_0_BYTES = 54,
    TM_TQ1_0_FEW = 2, /* most rows of activations whose digits AVX-512 does not decode */
    TM_TQ1_0_PAIR = 5 * 64 /* activations that meet the first 32 bytes of two groups */
};

TM_KERNELS(ternary_matmul_tq1_0);

/* See tm_amx_panels. */
void tm_tq1_0_decoded_avx512(const uint8_t *const *groups, int8_t *to);

/* A reordered row of activations, for AVX-512: four groups after four, and the last four once more. It lies behind the
 * sums of its groups, on a cache line. */
static inline int8_t *tm_tq1_0_arranged(const tm_ternary_matmul_args *args)
{
    return (int8_t *)(((uintptr_t)(args->act_sums + args->K / TM_TQ1_0_GROUP) + 63) & ~(uintptr_t)63);
}

/* Bytes of room for the sums, and for one reordered row of activations. */
static inline size_t tm_tq1_0_room(size_t M, size_t K)
{
    return tm_groups_room(M, K, TM_TQ1_0_GROUP) + (M == 1 ? K + 4 * TM_TQ1_0_GROUP + 63 : 0);
}

/* A group's scale as stored. */
static inline uint16_t tm_tq1_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group + TM_TQ1_0_SCALE, sizeof bits);
    return bits;
}

#endif
