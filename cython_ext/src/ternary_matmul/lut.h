/* ternary_matmul by look-up, over the formats of bitnet.cpp's look-up kernels (kernels/formats/tl1.py, tl2.py): what TL1
 * and TL2 share.
 *
 * A few weights of a row are a field of a nibble; what they may add to a sum, for one row of activations, is a table
 * of 16 entries, and 16 or more rows of weights look up at once (pshufb). An entry e is up to 384 in magnitude. The
 * originals keep it as the two bytes of an int16, look up both, and interleave the results before every addition.
 * Here it is two digits of base 31,
 *     e = 31 h + l, |l| <= 15, |h| <= 12,
 * so that sums of TM_LUT_FLUSH look-ups stay in int8 (8 * 15 = 120), digit by digit; after these the digits' sums are
 * interleaved once and become int16 by one maddubs. So an exact sum takes a quarter less instructions, and of
 * shuffles, of which Intel's cores do one a cycle, half.
 *
 * maddubs takes unsigned bytes, so 128 is added to both digits' sums, which is TM_LUT_BIAS in all, taken back with
 * the int16 sums: those are exact modulo 2^16, and of up to 85 look-ups (85 * 384 = 32640) in int16. int32 sums stay
 * within 128 * K.
 *
 * With AVX2 and what is above it five rows of activations and more do without tables: weights become tile64, a stretch of a
 * tile at a time, and go there (tiles.h), so that weights are looked up once, and not for each row of activations. Time
 * against tables for four rows after the other (`tritmark gate 58d6a8b d80a47b --suite league --op ternary_matmul --variant
 * 'cpu/ternary_matmul/tl?/float32/avx*'`, Zen 4, two threads, 2560 x 2560), M = 16 / 128: tl1 -46 / -55 % with AVX-512, -30
 * / -40 % with AVX2, tl2 -31 / -44 % and -20 / -33 %. At M = 64 they take 1.05 times tile64's time, at 128 1.2 times; of
 * that the second time that a tile becomes tile64, for a second slab, explains a third, and the rest was not found.
 *
 * Weights are fetched ahead, whatever the setting of the other formats: beside the tables, which are a second stream, the
 * hardware of neither processor that was tried does it. Time from memory over that before, one row of activations, 2560 x
 * 2560 to 2560 x 6912 (`python suites/performance/gemv.py --format tl1 --no-peers --before SO_OF_3ca4dec --threads 1 2 16`; in
 * the caches 0.94 to 1.03):
 *                                             tl1             tl2
 *   Zen 4, 1 and 2 threads           AVX-512  0.54 to 0.68    0.68 to 0.79
 *                                    AVX2     0.54 to 0.58    0.65 to 0.71
 *   Intel Xeon (Emerald Rapids),     AVX-512  0.54 to 0.56    0.64 to 0.73
 *     1 and 16 threads               AVX-512  0.73 to 0.81    0.70 to 0.83
 * A loop that does as much for a line as tl1 with AVX-512 took 2.5 times a plain read's time on Zen 4, outside of the project,
 * 1.4 with lines fetched 4 KiB ahead into L2, 1.15 at 8 and 16 KiB; into L1 1.6 to 1.8. By the same script, of versions that
 * are gone: every second line, no gain; all lines of 32 rows of tl2 before these, its signs too, 1.06 to 1.13 in the caches,
 * and less gained from memory.
 *
 * The tables are made by all threads in tl2 (16 threads of that Xeon, in the caches: 0.74 to 0.90 of the time), in tl1, where
 * they are half as many bytes, only for several long rows: 1.05 to 1.15 there. tl1's tables as whole 64-byte vectors, for
 * loads that put 32 bytes into both halves take the port of shuffles: 0.85 in the caches with one thread of Zen 4, 1.25 from
 * memory, where the tables are then, too.
 *
 * Tables are made once for a call and up to TM_LUT_ROWS rows of activations, in `args->tables`; then all weights go
 * past them, the rows' tables of one tile's columns (4 KiB a row at most in published layouts) staying in L1. */
#ifndef TM_LUT_H
#define TM_LUT_H

#include "ternary_matmul.h"

enum {
    TM_LUT_ROWS = 4, /* rows of activations that there are tables for at once */
    TM_LUT_FLUSH = 8, /* look-ups between two additions to the int16 sums */
    TM_LUT_BASE = 31, /* of the two digits of an entry */
    TM_LUT_BIAS = 4096, /* 128 * (1 + 31) */
    TM_LUT_AHEAD = 8192, /* bytes of weights that are fetched ahead, into L2; on every processor */
    TM_LUT_SUMS = 512, /* rows of weights whose sums are on the stack at once */
};

/* acc[m][i] += the products of `rows` rows of weights from row n on, and all K, for all M of `args`. The rows are in
 * one row of tiles. */
typedef void (*tm_lut_rows)(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS]);

/* Rows [begin, end) of the weights in units of bm. */
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

/* `fill` of all tables, `each` of them for a row of activations, of which `grain` pay for one more thread, then `body` over
 * all weights, for TM_LUT_ROWS rows of activations after the other. */
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
        part.out = (uint8_t *)args->out + m * args->N * element;
        tm_parallel(part.M * each, 1, grain, part.run.threads, fill, &part);
        tm_matmul_run_by(&part, args->bm, body, rank);
        used = part.run.used > used ? part.run.used : used;
    }
    args->run.used = used;
    return tm_finish(&args->run, rank);
}

#endif
