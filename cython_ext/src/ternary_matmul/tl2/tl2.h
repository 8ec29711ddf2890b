/* ternary_matmul on the bytes of tl2 (kernels/formats/tl2.py): look-ups of triples with their signs, and of pairs in
 * the last columns, see ../lut.h.
 *
 * 32 bytes are 32 rows, in an order such that interleaving with a second such vector gives rows 0 to 15 and 16 to 31.
 * Two of these, 12 columns of triples or 8 of pairs, are 64 bytes and have 256 bytes of tables: for the high nibbles
 * low digits, then high digits, then the same for the low nibbles. Each 64 bytes of these hold the table of the first
 * 32 bytes twice, then that of the others twice, because shuffles work within 16 bytes. */
#ifndef TM_TL2_H
#define TM_TL2_H

#include "../lut.h"

enum {
    TM_TL2_ROWS = 32,
    TM_TL2_SIGNED = 24,  /* columns of 32 bytes of signs */
    TM_TL2_TRIPLES = 12, /* columns of 256 bytes of tables */
    TM_TL2_PAIRS = 8,    /* columns of pairs of 256 bytes of tables */
    TM_TL2_TABLES = 256,
    TM_TL2_PAIRED = 32, /* columns of a tile of pairs */
    TM_TL2_GRAIN = 32, /* tables that justify one more thread */
    TM_TL2_ARRANGED = 5, /* fewest rows of activations for which weights are converted to tile64 */
};

TM_KERNELS(ternary_matmul_tl2);

/* See tm_arrange. */
void tm_tl2_arrange_avx512(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to);

/* Columns of triples. */
static inline size_t tm_tl2_tripled(const tm_ternary_matmul_args *args) { return args->K - args->K % args->BK; }

/* Tables of a row of activations: those of all triples, then those of the pairs. */
static inline size_t tm_tl2_each(const tm_ternary_matmul_args *args)
{
    const size_t tripled = tm_tl2_tripled(args);
    return tripled / TM_TL2_TRIPLES + (args->K - tripled) / TM_TL2_PAIRS;
}

static inline size_t tm_tl2_row(const tm_ternary_matmul_args *args) { return tm_tl2_each(args) * TM_TL2_TABLES; }

/* The original's bytes have no room for more than 256 columns of pairs. */
static inline size_t tm_tl2_tables(const tm_ternary_matmul_args *args)
{
    if (args->bm != TM_TL2_ROWS || args->BM == 0 || args->BM % TM_TL2_ROWS || args->N % args->BM || args->BK == 0 ||
        args->BK % TM_TL2_SIGNED || args->K % args->BK % TM_TL2_PAIRED || args->K % args->BK > 256)
        return 0;
    return (args->M < TM_LUT_ROWS ? args->M : TM_LUT_ROWS) * tm_tl2_row(args);
}

/* Where rows from n begin in a part of the bytes: `width` columns, of which a row has `all`, in eighths of bytes
 * each. */
static inline size_t tm_tl2_within(const tm_ternary_matmul_args *args, size_t n, size_t k, size_t width, size_t all)
{
    const size_t row = n / args->BM * args->BM;
    return row * all + k * args->BM + (n - row) * width;
}

/* The nibbles, signs and pairs of 32 rows or more from row n, from the tile's column k of that part. */
static inline const uint8_t *tm_tl2_nibbles(const tm_ternary_matmul_args *args, size_t n, size_t k)
{
    return args->weights + tm_tl2_within(args, n, k, args->BK, tm_tl2_tripled(args)) / 6;
}

static inline const uint8_t *tm_tl2_signs(const tm_ternary_matmul_args *args, size_t n, size_t k)
{
    const size_t tripled = tm_tl2_tripled(args);
    return args->weights + args->N * tripled / 6 + tm_tl2_within(args, n, k, args->BK, tripled) / 24;
}

static inline const uint8_t *tm_tl2_pairs(const tm_ternary_matmul_args *args, size_t n, size_t k)
{
    const size_t tripled = tm_tl2_tripled(args);
    return args->weights + args->N * tripled / 6 + args->N * tripled / 24 +
           tm_tl2_within(args, n, k, TM_TL2_PAIRED, args->K - tripled) / 4;
}

/* What an instruction set provides to convert weights to tile64: six groups of triples, and one of pairs, of two times
 * 32 rows. */
typedef void (*tm_tl2_triples)(const uint8_t *const nibbles[2], const uint8_t *const signs[2], uint8_t *to);
typedef void (*tm_tl2_pairs_by)(const uint8_t *low, const uint8_t *high, uint8_t *to);

/* Converts groups of tile t, from a multiple of six; prefetches those of the next. If the tile has at most 32 rows,
 * these are taken twice, and the others' sums are not stored. */
static inline __attribute__((always_inline)) void tm_tl2_arrange(
    const tm_ternary_matmul_args *args, size_t t, size_t group, size_t groups, uint8_t *to, tm_tl2_triples triples,
    tm_tl2_pairs_by pairs)
{
    const size_t n = t * TM_TILE, other = n + TM_TL2_ROWS < args->N ? n + TM_TL2_ROWS : n;
    const size_t tripled = tm_tl2_tripled(args), end = 4 * (group + groups);
    size_t k = 4 * group;
    for (; k < end && k < tripled; k += TM_TL2_SIGNED, to += TM_TL2_SIGNED / 4 * TM_TILE) {
        const size_t tile = k / args->BK * args->BK, at = (k - tile) / TM_TL2_SIGNED * 32;
        const uint8_t *const nibbles[2] = {
            tm_tl2_nibbles(args, n, tile) + 4 * at, tm_tl2_nibbles(args, other, tile) + 4 * at};
        const uint8_t *const signs[2] = {tm_tl2_signs(args, n, tile) + at, tm_tl2_signs(args, other, tile) + at};
        for (size_t next = n + TM_TILE; next < n + 2 * TM_TILE; next += TM_TL2_ROWS) {
            const uint8_t *const at_next = tm_tl2_nibbles(args, next, tile) + 4 * at;
            __builtin_prefetch(at_next, 0, 2);
            __builtin_prefetch(at_next + 64, 0, 2);
            __builtin_prefetch(tm_tl2_signs(args, next, tile) + at, 0, 2);
        }
        triples(nibbles, signs, to);
    }
    for (; k < end; k += 4, to += TM_TILE) {
        const size_t from = k - tripled, tile = from / TM_TL2_PAIRED * TM_TL2_PAIRED, at = 8 * (from - tile);
        pairs(tm_tl2_pairs(args, n, tile) + at, tm_tl2_pairs(args, other, tile) + at, to);
    }
}

#endif
