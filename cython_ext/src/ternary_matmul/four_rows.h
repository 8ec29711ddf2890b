/* One row of activations times formats with a scale for each group of weights, a group of four rows at a time, which share
 * what is loaded of the activations; their sums stay in lanes. Included behind TM_BEGIN, and compiled for the including
 * file's set. */
#ifndef TM_FOUR_ROWS_H
#define TM_FOUR_ROWS_H

#include "fours.h"

/* sum(code * x) of a group of each of TM_ROWS rows; `x` is its share of the activations, in their order or the format's. */
typedef __m128i (*tm_group_rows)(const uint8_t *const *groups, const int8_t *x);

/* Of what four rows take whole lines are fetched ahead, in the order in which they lie, from behind the last row on. What is
 * left out is a line of 33 with groups of 66 bytes; fetched too, for most of them once more, it took tq2_0 1.1 of the time
 * from memory, on Zen 4. */
static inline __attribute__((always_inline)) void tm_groups_rows_one_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_ternary_matmul_args *args, size_t begin, size_t end,
    tm_grouped form, size_t scale_at, const int8_t *x, tm_group_rows sums)
{
    const size_t groups = args->K / form.weights, row = groups * form.bytes, taken = TM_ROWS * form.bytes;
    const size_t stop = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t n = TM_ROWS * begin; n < stop; n += TM_ROWS) {
        const size_t count = stop - n < TM_ROWS ? stop - n : TM_ROWS;
        const uint8_t *at[TM_ROWS];
        tm_rows_begin(args, n, count, row, TM_ROWS, at);
        const uint8_t *fetched = at[TM_ROWS - 1];
        __m256d sum = _mm256_setzero_pd();
        for (size_t g = 0; g < groups; g++) {
            tm_prefetch_lines(fetched, taken / TM_PREFETCH_LINE * TM_PREFETCH_LINE, level, ahead);
            fetched += taken;
            const __m128i part = _mm_sub_epi32(sums(at, x + g * form.weights), _mm_set1_epi32(args->act_sums[g]));
            sum = _mm256_add_pd(sum, _mm256_mul_pd(tm_four_scales(at, scale_at), _mm256_cvtepi32_pd(part)));
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                at[r] += form.bytes;
        }
        double of[TM_ROWS];
        _mm256_storeu_pd(of, sum);
        for (size_t r = 0; r < count; r++)
            tm_group_store(args, 0, n + r, of[r]);
    }
}

/* As tm_groups_one: the same products, added in the same order. */
static inline __attribute__((always_inline)) void tm_groups_rows_one(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, size_t scale_at, const int8_t *x,
    tm_group_rows sums)
{
    TM_PREFETCHED(
        tm_rows_prefetch(args->K), tm_groups_rows_one_by(level, ahead, args, begin, end, form, scale_at, x, sums));
}

#endif
