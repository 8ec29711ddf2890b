/* ternary_matmul straight from the bytes of tl2 (kernels/formats/tl2.py): look-ups of triples with their signs, and of
 * pairs in the last columns, see ../lut.h.
 *
 * 32 bytes are 32 rows, in the order in which interleaving with a second such vector makes rows 0 to 15 and 16 to 31 of
 * them. Two of these, 12 columns of triples or 8 of pairs, are 64 bytes and have 256 bytes of tables: for the high
 * nibbles of both low digits, then high digits, then the same for the low nibbles; each of these 64 bytes has the
 * table of the first 32 bytes twice, then that of the others, for shuffles work in 16 bytes. */
#ifndef TM_TL2_H
#define TM_TL2_H

#include "../lut.h"

enum {
    TM_TL2_ROWS = 32,
    TM_TL2_SIGNED = 24,  /* columns of 32 bytes of signs */
    TM_TL2_TRIPLES = 12, /* columns of 256 bytes of tables */
    TM_TL2_PAIRS = 8,    /* columns of pairs of as many */
    TM_TL2_TABLES = 256,
    TM_TL2_PAIRED = 32, /* columns of a tile of pairs */
};

TM_KERNELS(ternary_matmul_tl2);

/* Columns that are triples. */
static inline size_t tm_tl2_tripled(const tm_ternary_matmul_args *args) { return args->K - args->K % args->BK; }

/* Tables of a row of activations: those of all triples, then those of the pairs. */
static inline size_t tm_tl2_row(const tm_ternary_matmul_args *args)
{
    const size_t tripled = tm_tl2_tripled(args);
    return (tripled / TM_TL2_TRIPLES + (args->K - tripled) / TM_TL2_PAIRS) * TM_TL2_TABLES;
}

/* More than 256 columns of pairs have no room in the original's bytes. */
static inline size_t tm_tl2_tables(const tm_ternary_matmul_args *args)
{
    if (args->bm != TM_TL2_ROWS || args->BM == 0 || args->BM % TM_TL2_ROWS || args->N % args->BM || args->BK == 0 ||
        args->BK % TM_TL2_SIGNED || args->K % args->BK % TM_TL2_PAIRED || args->K % args->BK > 256)
        return 0;
    return (args->M < TM_LUT_ROWS ? args->M : TM_LUT_ROWS) * tm_tl2_row(args);
}

/* Where rows from n on begin in a part of the bytes: `width` columns of which a row has `all`, eighths of bytes each. */
static inline size_t tm_tl2_within(const tm_ternary_matmul_args *args, size_t n, size_t k, size_t width, size_t all)
{
    const size_t row = n / args->BM * args->BM;
    return row * all + k * args->BM + (n - row) * width;
}

/* The nibbles, signs and pairs of 32 rows or more from row n on, from the tile's column k of that part on. */
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

#endif
