/* ternary_matmul straight from the bytes of tl1 (kernels/formats/tl1.py), bm of 32 or 64: look-ups of pairs, see
 * ../lut.h.
 *
 * 64 bytes are bm rows and 256 / bm columns, 16 rows and 4 columns in each 16 bytes: with bm = 32 rows 0 to 15 of
 * columns 0 to 3 and 4 to 7, then rows 16 to 31; with bm = 64 four times 16 rows of columns 0 to 3. So the tables of 8
 * columns, that is of their pairs 0 to 3, lie as 32 bytes for each of two pairs, which are bm = 32's columns side by
 * side: low digits of the pairs 0 and 2, high digits, low digits of 1 and 3, high digits. */
#ifndef TM_TL1_H
#define TM_TL1_H

#include "../lut.h"

enum { TM_TL1_COLUMNS = 8, TM_TL1_TABLES = 128 }; /* tables of 8 columns are 128 bytes */

TM_KERNELS(ternary_matmul_tl1);

/* Of one row of activations. */
static inline size_t tm_tl1_row(size_t K) { return K / TM_TL1_COLUMNS * TM_TL1_TABLES; }

static inline size_t tm_tl1_tables(const tm_ternary_matmul_args *args)
{
    if ((args->bm != 32 && args->bm != 64) || args->BM == 0 || args->BM % args->bm || args->N % args->BM ||
        args->BK == 0 || args->BK % TM_TL1_COLUMNS || args->K % args->BK)
        return 0;
    return (args->M < TM_LUT_ROWS ? args->M : TM_LUT_ROWS) * tm_tl1_row(args->K);
}

/* The bytes of `bm` rows from row n on, within the columns of tile k. */
static inline const uint8_t *tm_tl1_at(const tm_ternary_matmul_args *args, size_t n, size_t k)
{
    const size_t row = n / args->BM * args->BM;
    return args->weights + row * args->K / 4 + k * args->BM * args->BK / 4 + (n - row) * args->BK / 4;
}

#endif
