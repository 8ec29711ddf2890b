/* ternary_matmul on the bytes of ggml's TQ2_0 (kernels/formats/tq2_0.py).
 *
 * A group of 256 weights is 66 bytes: two halves of 32, in which byte b holds, from the lowest bits, the codes w + 1 of
 * the weights b, 32 + b, 64 + b and 96 + b of its half; then the scale d as float16. So a shift gives the codes of 32
 * adjacent activations, in each half. Groups follow each other without a gap, so they are aligned to 2 bytes only.
 * Page: docs/kernels/tq2_0.md. */
#ifndef TM_TQ2_0_H
#define TM_TQ2_0_H

#include "../groups.h"

enum { TM_TQ2_0_GROUP = 256, TM_TQ2_0_HALF = 128, TM_TQ2_0_SCALE = 64, TM_TQ2_0_BYTES = 66 };

TM_KERNELS(ternary_matmul_tq2_0);

/* See tm_amx_panels. */
void tm_tq2_0_decoded_avx512(const uint8_t *const *groups, int8_t *to);

/* Reordered rows of activations, up to TM_FEW, for AVX-512: in each 256, a[128 * h + 32 * g + i] at 64 * g + 32 * h +
 * i. They lie behind the sums of their groups, on a cache line: a load across two lines takes the time of two. */
static inline int8_t *tm_tq2_0_arranged(const tm_ternary_matmul_args *args)
{
    return (int8_t *)(((uintptr_t)(args->act_sums + args->M * (args->K / TM_TQ2_0_GROUP)) + 63) & ~(uintptr_t)63);
}

/* Bytes of room for the sums, and for few reordered rows of activations. */
static inline size_t tm_tq2_0_room(size_t M, size_t K)
{
    return tm_groups_room(M, K, TM_TQ2_0_GROUP) + (M <= TM_FEW ? M * K + 63 : 0);
}

/* A group's scale as stored. */
static inline uint16_t tm_tq2_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group + TM_TQ2_0_SCALE, sizeof bits);
    return bits;
}

#endif
