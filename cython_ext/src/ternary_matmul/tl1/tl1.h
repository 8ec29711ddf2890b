/* ternary_matmul on the bytes of tl1 (kernels/formats/tl1.py), bm of 32 or 64: look-ups of pairs, see ../lut.h.
 *
 * 64 bytes are bm rows and 256 / bm columns, 16 rows and 4 columns in each 16 bytes. bm = 32: rows 0 to 15 of columns 0
 * to 3 and 4 to 7, then rows 16 to 31. bm = 64: four times 16 rows of columns 0 to 3. So the tables of 8 columns, pairs
 * 0 to 3, lie as 32 bytes for each of two pairs, which are bm = 32's columns side by side: low digits of the pairs 0
 * and 2, high digits, low digits of 1 and 3, high digits. */
#ifndef TM_TL1_H
#define TM_TL1_H

#include "../lut.h"

enum {
    TM_TL1_COLUMNS = 8,
    TM_TL1_TABLES = 128, /* bytes of tables of 8 columns */
    TM_TL1_GRAIN = 1024, /* tables that justify one more thread */
    TM_TL1_ARRANGED = 5, /* fewest rows of activations for which weights are converted to tile64 */
};

TM_KERNELS(ternary_matmul_tl1);

/* See tm_arrange. */
void tm_tl1_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to);

/* Tables of one row of activations; their bytes. */
static inline size_t tm_tl1_each(const tm_ternary_matmul_args *args) { return args->K / TM_TL1_COLUMNS; }
static inline size_t tm_tl1_row(size_t K) { return K / TM_TL1_COLUMNS * TM_TL1_TABLES; }

static inline size_t tm_tl1_tables(const tm_ternary_matmul_args *args)
{
    if ((args->bm != 32 && args->bm != 64) || args->BM == 0 || args->BM % args->bm || args->N % args->BM ||
        args->BK == 0 || args->BK % TM_TL1_COLUMNS || args->K % args->BK)
        return 0;
    return (args->M < TM_LUT_ROWS ? args->M : TM_LUT_ROWS) * tm_tl1_row(args->K);
}

/* The bytes of `bm` rows from row n, within the columns of tile k. */
static inline const uint8_t *tm_tl1_at(const tm_ternary_matmul_args *args, size_t n, size_t k)
{
    const size_t row = n / args->BM * args->BM;
    return args->weights + row * args->K / 4 + k * args->BM * args->BK / 4 + (n - row) * args->BK / 4;
}

/* What an instruction set provides to convert weights to tile64: two groups, of 128 bytes side by side if bm is 64,
 * else of 64 bytes of the first 32 rows and 64 of the other 32. */
typedef void (*tm_tl1_two)(size_t bm, const uint8_t *bytes, const uint8_t *others, uint8_t *to);

/* Converts groups of tile t, from an even one; prefetches those of the next. If the tile has at most 32 rows, these are
 * taken twice, and the others' sums are not stored. */
static inline __attribute__((always_inline)) void tm_tl1_arrange(
    const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to, tm_tl1_two two)
{
    const size_t n = t * TM_TILE, other = n + 32 < args->N ? n + 32 : n;
    for (size_t k = 4 * group, end = k + 4 * groups; k < end; k += TM_TL1_COLUMNS, to += 2 * TM_TILE) {
        const size_t tile = k / args->BK, at = (k - tile * args->BK) * args->bm / 4;
        const uint8_t *const next = tm_tl1_at(args, n + TM_TILE, tile) + at;
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(args->bm == TM_TILE ? next + 64 : tm_tl1_at(args, n + TM_TILE + 32, tile) + at, 0, 2);
        two(args->bm, tm_tl1_at(args, n, tile) + at, tm_tl1_at(args, other, tile) + at, to);
    }
}

#endif
