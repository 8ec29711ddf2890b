/* ternary_matmul over formats in which a row of weights is contiguous: the loops around a micro kernel.
 *
 * A micro kernel takes TM_ROWS rows of weights at once, which share its loads of activations, and up to `block` rows of
 * activations. */
#ifndef TM_ROWS_H
#define TM_ROWS_H

#include "ternary_matmul.h"

enum {
    TM_ROWS = 4,       /* rows of weights that a micro kernel takes at once */
    TM_ROWS_SUMS = 64, /* rows of activations between two walks over the weights; their sums are on the stack */
    TM_ROWS_LONG = 8192, /* longest rows of which four, at 2 bits a weight, stay in L1 beside their activations */
};

/* acc[m][r] = sum(code * a) of row r of the weights and row m of the activations, over all K. */
typedef void (*tm_rows_micro)(
    const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K, int32_t (*acc)[TM_ROWS]);

/* Calls `micro` with its first argument a constant, so that sums stay in registers. */
#define TM_ROWS_COUNTED(micro, count, ...) \
    switch (count) { \
    case 1: micro(1, __VA_ARGS__); break; \
    case 2: micro(2, __VA_ARGS__); break; \
    case 3: micro(3, __VA_ARGS__); break; \
    default: micro(4, __VA_ARGS__); break; \
    }

/* Start addresses of `rows` rows of weights from row n, of which `count` exist. Past the last row the first is
 * repeated, and its sums are not stored. */
static inline __attribute__((always_inline)) void tm_rows_begin(
    const tm_ternary_matmul_args *args, size_t n, size_t count, size_t row_bytes, size_t rows, const uint8_t **at)
{
    for (size_t r = 0; r < rows; r++)
        at[r] = args->weights + (n + (r < count ? r : 0)) * row_bytes;
}

/* Prefetch for kernels that take several rows at once: into L1 for short rows, which is faster on Zen 4
 * (docs/kernels/prefetch.md). */
static inline tm_prefetch tm_rows_prefetch(size_t K)
{
    return K <= TM_ROWS_LONG ? tm_weights_prefetch(tm_weights_near) : tm_prefetch_now(tm_weights_far, 0);
}

/* acc[r] = sum(code * x) of row r of the weights and the row of activations. `level` is a constant at each call. The
 * kernel prefetches as many bytes as the rows take, in memory order, from `ahead` bytes behind the last row of the
 * block. */
typedef void (*tm_rows_one)(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *const *rows, const int8_t *x, size_t K,
    int32_t *acc);

static inline __attribute__((always_inline)) void tm_matmul_one_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_ternary_matmul_args *args, size_t begin, size_t end,
    size_t row_bytes, tm_rows_one one)
{
    const int32_t act_sum = tm_sum(args->a, args->K);
    const size_t last = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t n = TM_ROWS * begin; n < last; n += TM_TILE) {
        const size_t count = last - n < TM_TILE ? last - n : TM_TILE;
        int32_t acc[TM_TILE];
        for (size_t i = 0; i < count; i += TM_ROWS) {
            const uint8_t *rows[TM_ROWS];
            tm_rows_begin(args, n + i, count - i, row_bytes, TM_ROWS, rows);
            one(level, ahead, rows, args->a, args->K, acc + i);
        }
        tm_matmul_store(args, 0, n, count, acc, act_sum);
    }
}

/* One row of activations, rows [begin, end) of the weights in units of TM_ROWS. */
static inline __attribute__((always_inline)) void tm_matmul_one(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t row_bytes, tm_prefetch fetch, tm_rows_one one)
{
    TM_PREFETCHED(fetch, tm_matmul_one_by(level, ahead, args, begin, end, row_bytes, one));
}

/* With several rows of activations the next rows of weights are prefetched in memory order, for the same reason. */
static inline void tm_fetch(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 64)
        __builtin_prefetch(bytes + i);
}

/* The TM_ROWS rows of weights from row n, and how many of them exist. */
static inline __attribute__((always_inline)) size_t
tm_rows_at(const tm_ternary_matmul_args *args, size_t n, size_t row_bytes, const uint8_t **rows)
{
    const size_t count = args->N - n < TM_ROWS ? args->N - n : TM_ROWS;
    tm_rows_begin(args, n, count, row_bytes, TM_ROWS, rows);
    if (n + TM_ROWS < args->N)
        tm_fetch(
            rows[0] + TM_ROWS * row_bytes, (args->N - n < 2 * TM_ROWS ? args->N - n - TM_ROWS : TM_ROWS) * row_bytes);
    return count;
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
            const uint8_t *rows[TM_ROWS];
            const size_t count = tm_rows_at(args, n, row_bytes, rows);
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

/* Like tm_rows_micro; prefetches as many bytes as the rows take, like tm_rows_one. */
typedef void (*tm_rows_fetching)(
    tm_prefetch fetch, const uint8_t *const *rows, const int8_t *a, size_t lda, int count, size_t K,
    int32_t (*acc)[TM_ROWS]);

/* Like tm_matmul_rows, but weights are prefetched while the first block of activations is multiplied, not all
 * beforehand: a core has no buffers for 40 lines or more at once. */
static inline __attribute__((always_inline)) void tm_matmul_rows_fetched(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t row_bytes, int block, tm_prefetch fetch,
    tm_rows_fetching micro)
{
    const size_t stop = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t first = 0; first < args->M; first += TM_ROWS_SUMS) {
        const size_t last = args->M - first < TM_ROWS_SUMS ? args->M : first + TM_ROWS_SUMS;
        int32_t act_sum[TM_ROWS_SUMS];
        double factor[TM_ROWS_SUMS];
        for (size_t m = first; m < last; m++) {
            act_sum[m - first] = tm_sum(args->a + m * args->lda, args->K);
            factor[m - first] = tm_matmul_factor(args, m);
        }
        for (size_t n = TM_ROWS * begin; n < stop; n += TM_ROWS) {
            const size_t count = stop - n < TM_ROWS ? stop - n : TM_ROWS;
            const uint8_t *rows[TM_ROWS];
            tm_rows_begin(args, n, count, row_bytes, TM_ROWS, rows);
            for (size_t m = first; m < last; m += (size_t)block) {
                const int taken = last - m < (size_t)block ? (int)(last - m) : block;
                int32_t acc[TM_MATMUL_BLOCK][TM_ROWS];
                micro(
                    m == first ? fetch : (tm_prefetch){TM_PREFETCH_NONE, 0}, rows, args->a + m * args->lda, args->lda,
                    taken, args->K, acc);
                for (size_t i = 0; i < (size_t)taken; i++)
                    tm_matmul_store_by(args, m + i, n, count, acc[i], act_sum[m + i - first], factor[m + i - first]);
            }
        }
    }
}

#endif
