/* ternary_matmul by look-up, over the formats of bitnet.cpp's look-up kernels (kernels/formats/tl1.py, tl2.py): what
 * TL1 and TL2 share.
 *
 * Layout: a few weights of a row are a field of a nibble. What they may add to a sum, for one row of activations, is a
 * table of 16 entries, and 16 or more rows of weights look up at once (pshufb). An entry e is up to 384 in magnitude.
 * The originals look up both bytes of an int16. Here e is two digits of base 31, e = 31 h + l, |l| <= 15, |h| <= 12.
 *
 * Algorithm: sums of TM_LUT_FLUSH look-ups stay in int8 (8 * 15 = 120), digit by digit. Then they are interleaved once
 * and become int16 by one maddubs, which halves the shuffles. maddubs takes unsigned bytes, so 128 is added to both
 * digits' sums (TM_LUT_BIAS in all) and subtracted from the int16 sums: those are exact modulo 2^16, and up to 85
 * look-ups (85 * 384 = 32640) fit int16. int32 sums stay within 128 * K. Tables are made once for a call and up to
 * TM_LUT_ROWS rows of activations, in `args->tables`; then all weights pass them. With AVX2 and above, five rows or
 * more use no tables: weights are converted to tile64 (tiles.h).
 *
 * Limit: in the caches the shuffle port. From memory the prefetch: beside the tables, a second stream, the hardware
 * does not prefetch weights. So this code does, independently of the setting for other formats.
 *
 * Rates: `python suites/performance/gemv.py --format tl1 --no-peers --threads 1 2`. Versions and what lost:
 * docs/kernels/lut.md. */
#ifndef TM_LUT_H
#define TM_LUT_H

#include "ternary_matmul.h"

enum {
    TM_LUT_ROWS = 4, /* most rows of activations with tables at once */
    TM_LUT_FLUSH = 8, /* look-ups between two additions to the int16 sums */
    TM_LUT_BASE = 31, /* of the two digits of an entry */
    TM_LUT_BIAS = 4096, /* 128 * (1 + 31) */
    TM_LUT_AHEAD = 8192, /* bytes of weights that are prefetched ahead, into L2; on every processor */
    TM_LUT_SUMS = 512, /* rows of weights whose sums are on the stack at once */
};

/* acc[m][i] += the products of `rows` rows of weights from row n, over all K, for all M of `args`. The rows are in one
 * row of tiles. */
typedef void (*tm_lut_rows)(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS]);

/* Runs rows [begin, end) of the weights in units of bm. */
static inline __attribute__((always_inline)) void tm_lut_body(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_lut_rows sums)
{
    const size_t bm = args->bm, last = end * bm;
    for (size_t n = begin * bm, rows; n < last; n += rows) {
        const size_t left = args->BM - n % args->BM, most = TM_LUT_SUMS / bm * bm;
        rows = left < last - n ? left : last - n;
        rows = rows < most ? rows : most;
        int32_t acc[TM_LUT_ROWS][TM_LUT_SUMS] __attribute__((aligned(64)));
        for (size_t m = 0; m < args->M; m++)
            memset(acc[m], 0, rows * sizeof **acc);
        sums(args, n, rows, acc);
        for (size_t m = 0; m < args->M; m++)
            tm_matmul_store(args, m, n, rows, acc[m], 0);
    }
}

/* For each TM_LUT_ROWS rows of activations runs `fill` over all tables, then `body` over all weights. `each`: tables of
 * a row of activations; `grain`: tables that justify one more thread. */
static inline int tm_lut_run(
    tm_ternary_matmul_args *args, size_t each, size_t grain, tm_body fill, tm_body body, int32_t rank)
{
    tm_ternary_matmul_args part = *args;
    const size_t element = args->kind == TM_OUT_BFLOAT16 ? 2 : 4;
    int32_t used = 1;
    for (size_t m = 0; m < args->M; m += TM_LUT_ROWS) {
        part.M = args->M - m < TM_LUT_ROWS ? args->M - m : TM_LUT_ROWS;
        part.a = args->a + m * args->lda;
        part.act_scale = args->act_scale ? args->act_scale + m : NULL;
        part.out = (uint8_t *)args->out + tm_matmul_at(args, m, 0) * element;
        tm_parallel(part.M * each, 1, grain, part.run.threads, fill, &part);
        tm_matmul_run_by(&part, args->bm, body, rank);
        used = part.run.used > used ? part.run.used : used;
    }
    args->run.used = used;
    return tm_finish(&args->run, rank);
}

#endif
