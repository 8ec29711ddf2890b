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

/* See tm_amx_panels. */
void tm_tq2_0_decoded_avx512(const uint8_t *const *groups, int8_t *to);

/* Rows of activations, up to TM_FEW, in the order in which AVX-512 meets them: in each 256, a[128 * h + 32 * g + i] at 64 * g
 * + 32 * h + i. They lie behind the sums of their groups, from a line of the cache on: a load across two takes the time of
 * two. */
static inline int8_t *tm_tq2_0_arranged(const tm_ternary_matmul_args *args)
{
    return (int8_t *)(((uintptr_t)(args->act_sums + args->M * (args->K / TM_TQ2_0_GROUP)) + 63) & ~(uintptr_t)63);
}

/* Bytes of the room that sums take, and of few rows of activations the rows themselves in that order. */
static inline size_t tm_tq2_0_room(size_t M, size_t K)
{
    return tm_groups_room(M, K, TM_TQ2_0_GROUP) + (M <= TM_FEW ? M * K + 63 : 0);
}

/* A group's scale as it is stored. */
static inline uint16_t tm_tq2_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group + TM_TQ2_0_SCALE, sizeof bits);
    return bits;
}

#endif
