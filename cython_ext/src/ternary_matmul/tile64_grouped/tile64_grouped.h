/* ternary_matmul over tile64 with a float16 scale for each group of a row's weights (kernels/formats/tile64_grouped.py):
 * the loops around an instruction set's micro kernel, for groups of 32, 64, 128 and 256.
 *
 * Layout: tiles of 64 rows. Of each group of columns a tile has 128 bytes of scales, one for each row in order, then
 * its codes as in tile64. Field 3 is the weight 2.
 *
 * Algorithm: that of tiles.h, with float32 sums. The sum of a group's products, its part, is exact in int32 and below
 * 2^24, so float32 holds it. Then sum = sum + scale * part in float32, two roundings, in the order of the groups. So
 * the bits are the same for every instruction set, number of threads and number of rows. At the end one product in
 * float64, and one rounding. The codes' offset of 1 is in the initial value of a group's sums, `starts`, which are
 * computed once for each row of activations and group.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul`. Page: docs/kernels/tile64_grouped.md. */
#ifndef TM_TILE64_GROUPED_H
#define TM_TILE64_GROUPED_H

#include "../panels.h"
#include "../tiles.h"

enum {
    TM_GROUPED_SCALES = 2 * TM_TILE, /* bytes of scales before the codes of a group */
    TM_GROUPED_STARTS = 4 /* most int32 that an instruction set keeps for a row of activations and a group */
};

TM_KERNELS(ternary_matmul_tile64_grouped);

/* A run of groups of a tile and what belongs to it. */
typedef struct tm_grouped_run {
    const uint8_t *tile; /* the first group, its scales included */
    size_t weights, count; /* weights of a group; groups */
    const int8_t *a; /* the first activation */
    size_t lda;
    const int32_t *starts; /* of the first group */
    size_t starts_apart; /* int32 between rows of activations */
    int there; /* rows of weights that the tile has; sums of the others may be left out */
} tm_grouped_run;

/* Adds the scaled sums of those groups and `rows` rows of activations to sums[row][64]. */
typedef void (*tm_grouped_micro)(const tm_grouped_run *run, int rows, float (*sums)[TM_TILE]);

/* The sums, at an address that the compiler does not know. Otherwise GCC 12 holds them on the stack, too, in the loop
 * over groups, and stores each twice. */
static inline __attribute__((always_inline)) float *tm_grouped_sums_at(float *sums)
{
    __asm__("" : "+r"(sums));
    return sums;
}

static inline size_t tm_grouped_bytes(size_t weights) { return TM_GROUPED_SCALES + weights / 4 * TM_TILE; }

/* How many groups have about that many times 4 columns. */
static inline size_t tm_grouped_fit(size_t fours, size_t weights)
{
    const size_t fit = fours * TM_TILE / tm_grouped_bytes(weights);
    return fit ? fit : 1;
}

/* Rows of activations for one walk over the weights, see tm_slab. */
typedef struct tm_grouped_slab {
    size_t first;
    int rows;
    double factor[TM_SLAB];
} tm_grouped_slab;

static inline void tm_grouped_slab_begin(
    tm_grouped_slab *slab, const tm_ternary_matmul_args *args, size_t index, size_t slabs)
{
    tm_slab_rows(args, index, slabs, &slab->first, &slab->rows);
    for (int r = 0; r < slab->rows; r++)
        slab->factor[r] = tm_matmul_factor(args, slab->first + (size_t)r);
}

/* Writes one row of a tile's sums, like tm_group_store. */
static inline __attribute__((always_inline)) void tm_grouped_store(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const float *sums, double factor)
{
    const size_t at = tm_matmul_at(args, m, n);
    if (args->kind == TM_OUT_FLOAT32) {
        float *out = (float *)args->out + at;
        for (size_t i = 0; i < count; i++)
            out[i] = (float)((double)sums[i] * factor);
        return;
    }
    uint16_t *out = (uint16_t *)args->out + at;
    for (size_t i = 0; i < count; i++) {
        const float value = (float)((double)sums[i] * factor);
        out[i] = value == value ? tm_bfloat16(value) : 0x7fc0;
    }
}

/* Finishes the sums of a row of activations, which a micro kernel may keep in units of its own. */
typedef void (*tm_grouped_last)(float *sums);

/* Runs the (slab, tile) pairs [begin, end), in blocks of up to `block` rows of activations whose sizes differ by one
 * row at most. `starts`: int32 for each row of activations and group. `last`: NULL for sums in units of 1. */
static inline __attribute__((always_inline)) void tm_grouped_tiles(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int block, size_t starts, tm_grouped_micro micro,
    tm_grouped_last last)
{
    const size_t across = tm_tiles_across(args), slabs = tm_slabs(args), weights = args->group;
    const size_t groups = args->K / weights, bytes = tm_grouped_bytes(weights);
    tm_pair at = tm_pair_at(begin, across);
    tm_grouped_slab slab;
    slab.first = 0;
    slab.rows = 0;
    for (size_t pair = begin; pair < end; pair++, tm_pair_next(&at, across)) {
        if (pair == begin || at.tile == 0)
            tm_grouped_slab_begin(&slab, args, at.slab, slabs);
        const size_t t = at.tile, n = t * TM_TILE, count = args->N - n < TM_TILE ? args->N - n : TM_TILE;
        const size_t step = slab.rows > block ? tm_grouped_fit(tm_blocking_here().groups, weights) : groups;
        const int blocks = (slab.rows + block - 1) / block;
        float sums[TM_SLAB][TM_TILE] __attribute__((aligned(64)));
        for (int r = 0; r < slab.rows; r++) /* as in tiles.h */
            memset(sums[r], 0, sizeof sums[r]);
        for (size_t g = 0; g < groups; g += step)
            for (int b = 0; b < blocks; b++) {
                const int first = slab.rows * b / blocks, rows = slab.rows * (b + 1) / blocks - first;
                const size_t m = slab.first + (size_t)first;
                const tm_grouped_run run = {
                    .tile = args->weights + (t * groups + g) * bytes,
                    .weights = weights,
                    .count = groups - g < step ? groups - g : step,
                    .a = args->a + m * args->lda + g * weights,
                    .lda = args->lda,
                    .starts = args->act_sums + (m * groups + g) * starts,
                    .starts_apart = groups * starts,
                    .there = (int)count,
                };
                micro(&run, rows, sums + first);
            }
        for (int r = 0; r < slab.rows; r++) {
            if (last)
                last(sums[r]);
            tm_grouped_store(args, slab.first + (size_t)r, n, count, sums[r], slab.factor[r]);
        }
    }
}

/* Computes the initial sums of rows [begin, end) of the activations with `start`, which writes `starts` int32 for the
 * activations of a group. */
static inline __attribute__((always_inline)) void tm_grouped_begin_rows(
    const tm_panel_start *given, size_t begin, size_t end, size_t starts,
    void (*start)(const int8_t *x, size_t weights, int32_t *to))
{
    const tm_ternary_matmul_args *args = given->args;
    const size_t weights = given->weights, groups = args->K / weights;
    for (size_t m = begin; m < end; m++)
        for (size_t g = 0; g < groups; g++)
            start(args->a + m * args->lda + g * weights, weights, args->act_sums + (m * groups + g) * starts);
}

/* `begins` computes the initial sums (a tm_body that takes a tm_panel_start), `body` multiplies. */
static inline int tm_grouped_run_by(tm_ternary_matmul_args *args, tm_body begins, tm_body body, int32_t rank)
{
    tm_panel_begin(args, args->group, 0, begins);
    return tm_matmul_run(args, body, rank);
}

#endif
