/* ternary_matmul over formats in which a row of weights is one stretch of bytes: the loops around a micro kernel.
 *
 * A micro kernel takes TM_ROWS rows of weights at once, so that what it loads of the activations meets all of them, and up to `block` rows of
 * activations. */
#ifndef TM_ROWS_H
#define TM_ROWS_H

#include "ternary_matmul.h"

enum {
    TM_ROWS = 4,       /* rows of weights that a micro kernel takes at once */
    TM_ROWS_SUMS = 64, /* rows of activations between two walks over the weights; their sums are on the stack */
};

/* acc[m][r] = sum(code * a) of row r of the weights and row m of the activations, over all K. */
typedef void (*tm_rows_micro)(const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K, int32_t (*acc)[TM_ROWS]);

/* A micro kernel walks along its rows side by side, each of which is too short for the hardware to see a stream in it. So the rows that come
 * next are fetched in the order in which they lie. 61440 x 2560, M = 1, one thread of Zen 4, other work beside it, AVX-512:
 *   none                                 6.6 ms
 *   each row 2 / 4 / 8 KiB ahead         3.7 / 4.4 / 4.4 ms
 *   the rows that come next              2.1 ms      (tile64, which is one stream, 1.7) */
static inline void tm_fetch(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 64)
        __builtin_prefetch(bytes + i);
}

/* Rows [begin, end) of the weights, in units of TM_ROWS. */
static inline __attribute__((always_inline)) void tm_matmul_rows(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t row_bytes, int block, tm_rows_micro micro)
{
    for (size_t first = 0; first < args->M; first += TM_ROWS_SUMS) {
        const size_t last = args->M - first < TM_ROWS_SUMS ? args->M : first + TM_ROWS_SUMS;
        int32_t act_sum[TM_ROWS_SUMS];
        for (size_t m = first; m < last; m++)
            act_sum[m - first] = tm_sum(args->a + m * args->lda, args->K);
        for (size_t n = TM_ROWS * begin; n < TM_ROWS * end && n < args->N; n += TM_ROWS) {
            const size_t count = args->N - n < TM_ROWS ? args->N - n : TM_ROWS;
            const uint8_t *rows[TM_ROWS];
            for (size_t r = 0; r < TM_ROWS; r++) /* past the last row the first again, which nobody stores */
                rows[r] = args->weights + (n + (r < count ? r : 0)) * row_bytes;
            if (n + TM_ROWS < args->N)
                tm_fetch(rows[0] + TM_ROWS * row_bytes, (args->N - n < 2 * TM_ROWS ? args->N - n - TM_ROWS : TM_ROWS) * row_bytes);
            for (size_t m = first; m < last; m += (size_t)block) {
                const int taken = last - m < (size_t)block ? (int)(last - m) : block;
                int32_t acc[TM_MATMUL_BLOCK][TM_ROWS];
                micro(rows, args->a + m * args->lda, args->lda, taken, args->K, acc);
                for (int i = 0; i < taken; i++)
                    tm_matmul_store(args, m + (size_t)i, n, count, acc[i], act_sum[m + (size_t)i - first]);
            }
        }
    }
}

/* As tm_matmul_run, for units of TM_ROWS rows. */
static inline int tm_matmul_rows_run(tm_ternary_matmul_args *args, tm_body body, int32_t rank)
{
    size_t units = (args->N + TM_ROWS - 1) / TM_ROWS;
    size_t work = TM_ROWS * args->K * args->M;
    size_t grain = ((size_t)1 << 19) / (work ? work : 1);
    args->run.used = tm_parallel(units, 1, grain ? grain : 1, args->run.threads, body, args);
    return tm_finish(&args->run, rank);
}

#endif
