/* ternary_matmul over tile64: the loops around an instruction set's micro kernel.
 *
 * Algorithm: rows of activations are cut into slabs. A thread takes a range of (slab, tile) pairs, tiles innermost, so
 * a slab stays in L2 while the tiles pass it. A stretch of K of a tile stays in L1 while the slab's rows pass it, a
 * block of rows at a time. Their sums wait in 24 KiB of the thread's stack. So weights enter L1 once for each slab, not
 * once for each block.
 *
 * This is the same for any M, so there is no M at which the time jumps.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul`. Versions and what lost: docs/kernels/tile64_avx512.md. */
#ifndef TM_TILES_H
#define TM_TILES_H

#include "ternary_matmul.h"

#include <unistd.h>

enum {
    TM_SLAB = 96,       /* most rows of a slab */
    TM_SLAB_LEAST = 24, /* fewest, if there are several slabs: smaller ones would only share out work */
    TM_PAIRS = 8,       /* (slab, tile) pairs for each thread, so that all threads end together */
    TM_ARRANGED = 256   /* most groups of a tile that are converted at a time */
};

/* Converts weights of another format to tile64: `groups` groups of tile t from group k, a multiple of the format's
 * unit. */
typedef void (*tm_arrange)(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to);

/* Like tm_matmul_store_by: writes one row of a tile's sums. */
typedef void (*tm_sums_store)(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const int32_t *acc, int32_t act_sum,
    double factor);

/* Sizes that fit the caches: bytes of a slab (half of L2), groups of a tile (a third of L1). */
typedef struct tm_blocking {
    size_t slab_bytes, groups;
} tm_blocking;

/* If the system does not report the caches: 32 KiB and 256 KiB, the least that any supported processor has. */
static inline tm_blocking tm_blocking_here(void)
{
    static size_t l1, l2; /* threads that find 0 write the same value */
    size_t first = __atomic_load_n(&l1, __ATOMIC_RELAXED), second = __atomic_load_n(&l2, __ATOMIC_RELAXED);
    if (!first || !second) {
        long told[2] = {0, 0};
#ifdef _SC_LEVEL1_DCACHE_SIZE
        told[0] = sysconf(_SC_LEVEL1_DCACHE_SIZE);
        told[1] = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        first = told[0] > 0 ? (size_t)told[0] : (size_t)32 << 10;
        second = told[1] > 0 ? (size_t)told[1] : (size_t)256 << 10;
        __atomic_store_n(&l1, first, __ATOMIC_RELAXED);
        __atomic_store_n(&l2, second, __ATOMIC_RELAXED);
    }
    const size_t groups = first / 3 / TM_TILE;
    return (tm_blocking){second / 2, groups < 64 ? 64 : groups > TM_MATMUL_CHUNK ? TM_MATMUL_CHUNK : groups};
}

static inline size_t tm_tiles_across(const tm_ternary_matmul_args *args) { return (args->N + TM_TILE - 1) / TM_TILE; }

/* Number of slabs; their sizes differ by one row at most. */
static inline size_t tm_slabs(const tm_ternary_matmul_args *args)
{
    if (args->M <= TM_SLAB_LEAST) /* the result of the divisions below, whose time is noticeable in a short call */
        return 1;
    const size_t fit = tm_blocking_here().slab_bytes / args->K;
    const size_t most = fit > TM_SLAB ? TM_SLAB : fit < TM_SLAB_LEAST ? TM_SLAB_LEAST : fit;
    const size_t needed = (args->M + most - 1) / most, threads = (size_t)args->run.threads;
    const size_t across = tm_tiles_across(args), even = threads > 1 ? (TM_PAIRS * threads + across - 1) / across : 1;
    const size_t may = args->M / TM_SLAB_LEAST, more = even < may ? even : may;
    return needed > more ? needed : more;
}

/* Rows of slab `index`. */
static inline void tm_slab_rows(
    const tm_ternary_matmul_args *args, size_t index, size_t slabs, size_t *first, int *rows)
{
    if (slabs == 1) { /* as above */
        *first = 0;
        *rows = (int)args->M;
        return;
    }
    *first = args->M * index / slabs;
    *rows = (int)(args->M * (index + 1) / slabs - *first);
}

/* A pair of a slab and a tile of the weights; tiles are innermost. */
typedef struct tm_pair {
    size_t slab, tile;
} tm_pair;

static inline tm_pair tm_pair_at(size_t number, size_t across)
{
    const size_t slab = number ? number / across : 0; /* as above */
    return (tm_pair){slab, number - slab * across};
}

static inline void tm_pair_next(tm_pair *at, size_t across)
{
    if (++at->tile == across)
        *at = (tm_pair){at->slab + 1, 0};
}

/* What is the same for all tiles of a slab. */
typedef struct tm_slab {
    size_t first;
    int rows;
    int32_t act_sum[TM_SLAB];
    double factor[TM_SLAB];
    int8_t last[TM_SLAB][4]; /* the last K mod 4 columns, and zeros */
} tm_slab;

static inline __attribute__((always_inline)) void tm_slab_begin(
    tm_slab *slab, const tm_ternary_matmul_args *args, size_t index, size_t slabs)
{
    const size_t whole = args->K / 4, rest = args->K % 4;
    tm_slab_rows(args, index, slabs, &slab->first, &slab->rows);
    for (int r = 0; r < slab->rows; r++) {
        const size_t m = slab->first + (size_t)r;
        const int8_t *a = args->a + m * args->lda;
        slab->act_sum[r] = tm_sum(a, args->K);
        slab->factor[r] = tm_matmul_factor(args, m);
        memset(slab->last[r], 0, sizeof slab->last[r]);
        memcpy(slab->last[r], a + 4 * whole, rest);
    }
}

/* Row 16 * g + i of a tile is in lane i. Of `parts` equal parts of the lanes, how many hold one of the first `there`
 * rows. */
static inline int tm_tile_parts(int there, int parts)
{
    return there >= TM_TILE / 4 ? parts : (there * parts + TM_TILE / 4 - 1) / (TM_TILE / 4);
}

/* Multiplies `groups` groups of a tile by all rows of the slab, in blocks whose sizes differ by one row at most. */
static inline __attribute__((always_inline)) void tm_slab_pass(
    const tm_slab *slab, int block, tm_micro micro, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int there, int32_t (*acc)[TM_TILE])
{
    const int blocks = (slab->rows + block - 1) / block;
    for (int b = 0; b < blocks; b++) {
        const int first = slab->rows * b / blocks, rows = slab->rows * (b + 1) / blocks - first;
        micro(tile, groups, a + (size_t)first * lda, lda, rows, there, acc + first);
    }
}

/* How many groups are converted at a time if `step` of them are to stay in L1. */
static inline size_t tm_arranged_groups(size_t step, size_t unit)
{
    return ((step < TM_ARRANGED ? step : TM_ARRANGED) + unit / 2) / unit * unit;
}

/* Runs the pairs [begin, end), in blocks of up to `block` rows of activations. With `arrange`, weights are of another
 * format; then K is a multiple of 4 unless `unit` is 1, and `unit` is at most TM_ARRANGED. */
static inline __attribute__((always_inline)) void tm_matmul_arranged_by(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int block, tm_micro micro, tm_arrange arrange,
    size_t unit, tm_sums_store store)
{
    const size_t across = tm_tiles_across(args), slabs = tm_slabs(args), whole = args->K / 4;
    tm_pair at = tm_pair_at(begin, across);
    tm_slab slab;
    slab.rows = 0;
    for (size_t pair = begin; pair < end; pair++, tm_pair_next(&at, across)) {
        if (pair == begin || at.tile == 0)
            tm_slab_begin(&slab, args, at.slab, slabs);
        const size_t t = at.tile, n = t * TM_TILE, count = args->N - n < TM_TILE ? args->N - n : TM_TILE;
        const uint8_t *tile = args->weights + t * ((args->K + 3) / 4) * TM_TILE;
        const int8_t *a = args->a + slab.first * args->lda;
        size_t step = slab.rows > block ? tm_blocking_here().groups : TM_MATMUL_CHUNK;
        uint8_t arranged[TM_ARRANGED + TM_ARRANGED / 2][TM_TILE] __attribute__((aligned(64)));
        if (arrange)
            step = tm_arranged_groups(step, unit);
        int32_t acc[TM_SLAB][TM_TILE] __attribute__((aligned(64)));
        for (int r = 0; r < slab.rows; r++) /* of a constant size, so without a call */
            memset(acc[r], 0, sizeof acc[r]);
        for (size_t k = 0; k < whole; k += step) {
            const size_t groups = whole - k < step ? whole - k : step;
            if (arrange)
                arrange(args, t, k, groups, arranged[0]);
            tm_slab_pass(
                &slab, block, micro, arrange ? arranged[0] : tile + k * TM_TILE, groups, a + 4 * k, args->lda,
                (int)count, acc);
        }
        if (args->K % 4) {
            if (arrange)
                arrange(args, t, whole, 1, arranged[0]);
            tm_slab_pass(
                &slab, block, micro, arrange ? arranged[0] : tile + whole * TM_TILE, 1, slab.last[0],
                sizeof slab.last[0], (int)count, acc);
        }
        for (int r = 0; r < slab.rows; r++)
            store(args, slab.first + (size_t)r, n, count, acc[r], slab.act_sum[r], slab.factor[r]);
    }
}

/* The same with one scale for all weights. */
static inline __attribute__((always_inline)) void tm_matmul_arranged(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int block, tm_micro micro, tm_arrange arrange,
    size_t unit)
{
    tm_matmul_arranged_by(args, begin, end, block, micro, arrange, unit, tm_matmul_store_by);
}

/* The same for weights in tile64. */
static inline __attribute__((always_inline)) void tm_matmul_tiles(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int block, tm_micro micro)
{
    tm_matmul_arranged(args, begin, end, block, micro, NULL, 1);
}

/* Runs `body` over all (slab, tile) pairs. */
static inline int tm_matmul_run(tm_ternary_matmul_args *args, tm_body body, int32_t rank)
{
    const size_t slabs = tm_slabs(args), rows = slabs == 1 ? args->M : (args->M + slabs - 1) / slabs;
    const size_t work = TM_TILE * args->K * rows;
    args->run.used =
        tm_parallel(slabs * tm_tiles_across(args), 1, tm_matmul_grain(work), args->run.threads, body, args);
    return tm_finish(&args->run, rank);
}

#endif
