/* ternary_matmul over tile80 (kernels/formats/tile80.py): the loops around an instruction set's micro kernel.
 *
 * Layout: tiles of 80 rows, 64 bytes for each group of 4 columns. Byte 4*r + kk holds the codes w + 1 of the rows r, r
 * + 16, r + 32, r + 48 and r + 64, column kk of the group, as base-3 digits, the first the most significant. A byte q
 * is a fraction of 256: digit 0 is 3 * q / 256, and 3 * q modulo 256 is the byte whose digit 0 is the next. Any byte
 * gives digits 0 to 2, also one that the format's unpacking refuses.
 *
 * Algorithm: few rows of activations, TM_TILE80_FEW or fewer by instruction set, use the digits directly. Tiles are
 * shared out in memory order, so that each thread reads one stream. More rows convert a stretch of a tile to tile64
 * once for each slab (tiles.h): four consecutive blocks of 16 rows of tile80. Page: docs/kernels/tile80.md. */
#ifndef TM_TILE80_H
#define TM_TILE80_H

#include "../tiles.h"

enum {
    TM_TILE80 = 80,        /* rows of a tile */
    TM_TILE80_DIGITS = 5,  /* blocks of 16 rows in it */
    TM_TILE80_FEW = 8,     /* most rows of activations that use the digits directly */
    TM_TILE80_FEW_AVX2 = 2, /* the same with AVX2 */
    TM_TILE80_CHUNK = 4096 /* groups between two additions to the int32 sums, see avx512.c */
};

TM_KERNELS(ternary_matmul_tile80);

static inline size_t tm_tile80_across(const tm_ternary_matmul_args *args)
{
    return (args->N + TM_TILE80 - 1) / TM_TILE80;
}

/* sum(code * a) of `groups` groups of one tile and `rows` rows of activations, added to acc[row][80]. */
typedef void (*tm_tile80_micro)(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE80]);

/* Multiplies `groups` groups of a tile by all rows of the slab. */
static inline __attribute__((always_inline)) void tm_tile80_pass(
    const tm_slab *slab, int block, tm_tile80_micro micro, const uint8_t *tile, size_t groups, const int8_t *a,
    size_t lda, int32_t (*acc)[TM_TILE80])
{
    for (int r = 0; r < slab->rows; r += block)
        micro(tile, groups, a + (size_t)r * lda, lda, slab->rows - r < block ? slab->rows - r : block, acc + r);
}

/* Multiplies tiles [begin, end) by the rows of a slab, of which `micro` takes up to `block` at once. */
static inline __attribute__((always_inline)) void tm_tile80_slab(
    const tm_ternary_matmul_args *args, const tm_slab *slab, size_t begin, size_t end, int block, tm_tile80_micro micro)
{
    const size_t whole = args->K / 4, stride = (args->K + 3) / 4 * TM_TILE;
    const size_t step = slab->rows > 1 ? tm_blocking_here().groups : TM_TILE80_CHUNK;
    for (size_t t = begin; t < end; t++) {
        const uint8_t *tile = args->weights + t * stride;
        const int8_t *a = args->a + slab->first * args->lda;
        int32_t acc[TM_TILE80_FEW][TM_TILE80] __attribute__((aligned(64)));
        memset(acc, 0, (size_t)slab->rows * sizeof *acc);
        for (size_t k = 0; k < whole; k += step)
            tm_tile80_pass(
                slab, block, micro, tile + k * TM_TILE, whole - k < step ? whole - k : step, a + 4 * k, args->lda, acc);
        if (args->K % 4)
            tm_tile80_pass(slab, block, micro, tile + whole * TM_TILE, 1, slab->last[0], sizeof slab->last[0], acc);
        const size_t n = t * TM_TILE80, count = args->N - n < TM_TILE80 ? args->N - n : TM_TILE80;
        for (int r = 0; r < slab->rows; r++)
            tm_matmul_store_by(args, slab->first + (size_t)r, n, count, acc[r], slab->act_sum[r], slab->factor[r]);
    }
}

/* The same for all rows of activations. */
static inline __attribute__((always_inline)) void tm_tile80_tiles(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, int block, tm_tile80_micro micro)
{
    const size_t slabs = (args->M + TM_TILE80_FEW - 1) / TM_TILE80_FEW;
    for (size_t index = 0; index < slabs; index++) {
        tm_slab slab;
        tm_slab_begin(&slab, args, index, slabs);
        tm_tile80_slab(args, &slab, begin, end, block, micro);
    }
}

/* Tile t of tile64 is four blocks of 16 rows: from digit `start` of `first`, continued in `second` if they cross into
 * the next tile. Both are of the group k. */
typedef struct tm_tile80_blocks {
    const uint8_t *first, *second;
    int start;
} tm_tile80_blocks;

static inline tm_tile80_blocks tm_tile80_blocks_of(const tm_ternary_matmul_args *args, size_t t, size_t k)
{
    const size_t groups = (args->K + 3) / 4, block = TM_TILE / 16 * t, tile = block / TM_TILE80_DIGITS;
    const uint8_t *first = args->weights + (tile * groups + k) * TM_TILE;
    const int last = tile + 1 == tm_tile80_across(args); /* then the next tile is not prefetched */
    return (tm_tile80_blocks){first, last ? first : first + groups * TM_TILE, (int)(block % TM_TILE80_DIGITS)};
}

/* Implements `arrange` of tiles.h by `from`, in which `start` is a constant at each call. */
#define TM_TILE80_ARRANGE(from, blocks, groups, to) \
    switch ((blocks).start) { \
    case 0: from(0, (blocks).first, (blocks).second, groups, to); break; \
    case 1: from(1, (blocks).first, (blocks).second, groups, to); break; \
    case 2: from(2, (blocks).first, (blocks).second, groups, to); break; \
    case 3: from(3, (blocks).first, (blocks).second, groups, to); break; \
    default: from(4, (blocks).first, (blocks).second, groups, to); break; \
    }

/* Runs `few` for up to `most` rows of activations, TM_TILE80_FEW at most, and `many` for more. */
static inline int tm_tile80_run(tm_ternary_matmul_args *args, size_t most, tm_body few, tm_body many, int32_t rank)
{
    return args->M <= most ? tm_matmul_run_by(args, TM_TILE80, few, rank) : tm_matmul_run(args, many, rank);
}

#endif
