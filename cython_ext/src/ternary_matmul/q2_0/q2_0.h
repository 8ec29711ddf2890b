/* ternary_matmul on the bytes of ggml's Q2_0 (kernels/formats/q2_0.py).
 *
 * Layout: a group of 64 weights is 18 bytes: the scale d as float16, then byte b with the codes w + 1 of the weights
 * 4*b to 4*b + 3, from the lowest bits. Field 3 means +2.
 *
 * A shift by 2*s gives the weights s, 4 + s, 8 + s, ... So the vector kernels keep a copy of the activations, behind
 * their sums, in which these lie side by side. One row, and with AVX-512 up to TM_FEW: a[4*i + s] of each 256 at 64*s +
 * i. Several rows, which meet groups one by one: a[4*i + s] of each 64 at 16*s + i. Rows are padded with zeros.
 *
 * The sum of a group's products is exact in int32. Its product with the scale, exact in float64, is added up by fours,
 * (p0 + p1) + (p2 + p3), and these in their order. So four groups can be summed at once, and the bits are the same for
 * every instruction set, number of threads and number of rows. Page: docs/kernels/q2_0.md. */
#ifndef TM_Q2_0_H
#define TM_Q2_0_H

#include "../groups.h"

enum {
    TM_Q2_0_GROUP = 64,
    TM_Q2_0_BYTES = 18,
    TM_Q2_0_CODES = 2, /* where they begin */
    TM_Q2_0_BLOCK = 256, /* activations that are reordered together, if there are few rows */
    TM_Q2_0_FOUR = 4, /* groups that are added up before they are added to a row's sum */
    TM_Q2_0_UNIT = 16, /* rows of weights in a thread's unit of work */
};

TM_KERNELS(ternary_matmul_q2_0);

/* See tm_amx_panels. */
void tm_q2_0_decoded_avx512(const uint8_t *const *groups, int8_t *to);

/* A group's scale as stored. */
static inline uint16_t tm_q2_0_stored(const uint8_t *group)
{
    uint16_t bits;
    memcpy(&bits, group, sizeof bits);
    return bits;
}

static inline size_t tm_q2_0_padded(size_t K) { return (K + TM_Q2_0_BLOCK - 1) / TM_Q2_0_BLOCK * TM_Q2_0_BLOCK; }

/* Row m of the reordered activations. Few rows begin on a cache line: a load across two lines takes the time of two.
 * With several rows, of which four bytes are loaded at a time, alignment gained nothing and 16 rows were slower. */
static inline int8_t *tm_q2_0_arranged(const tm_ternary_matmul_args *args, size_t m)
{
    const uintptr_t behind = (uintptr_t)(args->act_sums + args->M * (args->K / TM_Q2_0_GROUP));
    return (int8_t *)(args->M <= TM_FEW ? (behind + 63) & ~(uintptr_t)63 : behind) + m * tm_q2_0_padded(args->K);
}

/* The same arguments with the reordered activations. */
static inline tm_ternary_matmul_args tm_q2_0_moved(const tm_ternary_matmul_args *args)
{
    tm_ternary_matmul_args moved = *args;
    moved.a = tm_q2_0_arranged(args, 0);
    moved.lda = tm_q2_0_padded(args->K);
    return moved;
}

/* Bytes of room for the sums and the reordered activations. */
static inline size_t tm_q2_0_room(size_t M, size_t K)
{
    return tm_groups_room(M, K, TM_Q2_0_GROUP) + M * tm_q2_0_padded(K) + 63;
}

/* The sum of up to four groups, 256 weights by 256 activations `x`; `count` of them exist, 4 or the rest of a row. */
typedef double (*tm_q2_0_four)(const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums);

/* The sums of four fours. */
typedef void (*tm_q2_0_sixteen)(
    const uint8_t *groups, const int8_t *x, const int32_t *act_sums, double sums[TM_Q2_0_FOUR]);

static inline __attribute__((always_inline)) void tm_q2_0_one_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_ternary_matmul_args *args, size_t m, const int8_t *x,
    size_t begin, size_t end, tm_q2_0_four four, tm_q2_0_sixteen sixteen)
{
    const size_t groups = args->K / TM_Q2_0_GROUP;
    const size_t last = TM_Q2_0_UNIT * end < args->N ? TM_Q2_0_UNIT * end : args->N;
    const int32_t *act_sums = args->act_sums + m * groups;
    for (size_t n = TM_Q2_0_UNIT * begin; n < last; n++) {
        const uint8_t *row = args->weights + n * groups * TM_Q2_0_BYTES;
        double sum = 0;
        size_t g = 0;
        if (sixteen)
            for (; g + TM_Q2_0_FOUR * TM_Q2_0_FOUR <= groups; g += TM_Q2_0_FOUR * TM_Q2_0_FOUR) {
                double sums[TM_Q2_0_FOUR];
                tm_prefetch_lines(row + g * TM_Q2_0_BYTES, TM_Q2_0_FOUR * TM_Q2_0_FOUR * TM_Q2_0_BYTES, level, ahead);
                sixteen(row + g * TM_Q2_0_BYTES, x + g * TM_Q2_0_GROUP, act_sums + g, sums);
                for (int i = 0; i < TM_Q2_0_FOUR; i++)
                    sum += sums[i];
            }
        for (; g + TM_Q2_0_FOUR <= groups; g += TM_Q2_0_FOUR) {
            tm_prefetch_lines(row + g * TM_Q2_0_BYTES, TM_Q2_0_FOUR * TM_Q2_0_BYTES, level, ahead);
            sum += four(row + g * TM_Q2_0_BYTES, TM_Q2_0_FOUR, x + g * TM_Q2_0_GROUP, act_sums + g);
        }
        if (g < groups)
            sum += four(row + g * TM_Q2_0_BYTES, groups - g, x + g * TM_Q2_0_GROUP, act_sums + g);
        tm_group_store(args, m, n, sum);
    }
}

/* Row m of the activations, which begins at `x`, by rows [begin, end) of the weights in units of TM_Q2_0_UNIT, row
 * after row. `sixteen` may be NULL. */
static inline __attribute__((always_inline)) void tm_q2_0_one(
    const tm_ternary_matmul_args *args, size_t m, const int8_t *x, size_t begin, size_t end, tm_q2_0_four four,
    tm_q2_0_sixteen sixteen)
{
    TM_PREFETCHED(
        tm_weights_prefetch(tm_weights_plain), tm_q2_0_one_by(level, ahead, args, m, x, begin, end, four, sixteen));
}

static inline int tm_q2_0_run(tm_ternary_matmul_args *args, tm_body body, int32_t rank)
{
    tm_group_sums(args, TM_Q2_0_GROUP);
    return tm_matmul_run_by(args, TM_Q2_0_UNIT, body, rank);
}

#endif
