/* Most bytes of stack that a thread works in, by what a format's kernels do with its weights; see tm_matmul_format. An
 * instruction set that has no case of its own gets the most that any uses. */
#ifndef TM_STACKS_H
#define TM_STACKS_H

#include "tiles.h"

enum {
    TM_STACK_ARRANGED = (TM_ARRANGED + TM_ARRANGED / 2) * TM_TILE, /* a stretch of weights as tile64 */
    TM_STACK_PANEL = 896, /* sums of a row of activations over a panel of weights: tm_panel_sums, panels_avx512.h */
    TM_STACK_PANELS = 64  /* most such rows: TM_PANEL_SUMS there */
};

static inline size_t tm_stack_least(size_t M, size_t most) { return M < most ? M : most; }

/* Sets of aarch64; their kernels take rows of weights in registers. */
static inline int tm_stack_of_arm(int32_t rank)
{
    return rank == TM_RANK(neon) || rank == TM_RANK(dotprod) || rank == TM_RANK(i8mm);
}

/* Tiles: the sums of a slab of activations over a tile of weights. */
static inline size_t tm_stack_tiles(size_t M) { return sizeof(int32_t) * TM_TILE * tm_stack_least(M, TM_SLAB); }

/* Any set that converts weights to tile64. */
static inline size_t tm_stack_arranged(size_t M) { return tm_stack_tiles(M) + TM_STACK_ARRANGED; }

/* Look-up: one row of activations and plain C use tables, outside the stack. */
static inline size_t tm_stack_lut(int32_t rank, size_t M)
{
    return rank == TM_RANK(scalar) || (M == 1 && !tm_stack_of_arm(rank)) ? 0 : tm_stack_arranged(M);
}

/* Rows of weights. */
static inline size_t tm_stack_rows(int32_t rank, size_t M)
{
    return rank == TM_RANK(scalar) || M == 1 || tm_stack_of_arm(rank) ? 0 : tm_stack_arranged(M);
}

/* Groups with a scale; `few`: most rows of activations for which AVX-512 decodes weights in registers. */
static inline size_t tm_stack_groups(int32_t rank, size_t M, size_t few)
{
    const int direct = M == 1 || rank == TM_RANK(scalar) || tm_stack_of_arm(rank);
    return direct || (rank == TM_RANK(avx512) && M <= few) ? 0 : TM_STACK_PANEL * tm_stack_least(M, TM_STACK_PANELS);
}

#endif
