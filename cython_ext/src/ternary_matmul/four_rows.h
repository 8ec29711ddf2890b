/* Few rows of activations times formats with a scale for each group of weights. Included behind TM_BEGIN, and compiled
 * for the including file's instruction set.
 *
 * Algorithm: a group of four rows of weights at a time. They share each load of activations, and rows of activations
 * share the decoded codes. Sums stay in lanes, while panels (panels_avx512.h), which more rows use, pass through the
 * stack.
 *
 * Rates: `python suites/performance/instruction_sets.py --format tq2_0 --sets avx512 --rows 1 2 3 4`. Measurements:
 * docs/kernels/panels.md. */
#ifndef TM_FOUR_ROWS_H
#define TM_FOUR_ROWS_H

#include "fours.h"

/* sums[m] = sum(code * x) of a group of each of TM_ROWS rows. `x` is the first of `count` rows of activations, in their
 * order or the format's, `lda` bytes apart. `count` is a constant at each call. */
typedef void (*tm_group_rows)(
    const int count, const uint8_t *const *groups, const int8_t *x, size_t lda, __m128i *sums);

/* Prefetches whole lines of what four rows take, in memory order, from behind the last row. With groups of 66 bytes one
 * line of 33 is left out: to prefetch it too, most lines would be prefetched twice, which is slower. */
static inline __attribute__((always_inline)) void tm_groups_rows_by(
    const enum tm_prefetch_level level, size_t ahead, const int count, const tm_ternary_matmul_args *args, size_t begin,
    size_t end, tm_grouped form, size_t scale_at, const int8_t *x, size_t lda, tm_group_rows sums)
{
    const size_t groups = args->K / form.weights, row = groups * form.bytes, taken = TM_ROWS * form.bytes;
    const size_t stop = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t n = TM_ROWS * begin; n < stop; n += TM_ROWS) {
        const size_t there = stop - n < TM_ROWS ? stop - n : TM_ROWS;
        const uint8_t *at[TM_ROWS];
        tm_rows_begin(args, n, there, row, TM_ROWS, at);
        const uint8_t *fetched = at[TM_ROWS - 1];
        __m256d sum[TM_FEW];
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            sum[m] = _mm256_setzero_pd();
        for (size_t g = 0; g < groups; g++) {
            tm_prefetch_lines(fetched, taken / TM_PREFETCH_LINE * TM_PREFETCH_LINE, level, ahead);
            fetched += taken;
            __m128i part[TM_FEW];
            sums(count, at, x + g * form.weights, lda, part);
            const __m256d scales = tm_four_scales(at, scale_at);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) {
                const __m128i less = _mm_sub_epi32(part[m], _mm_set1_epi32(args->act_sums[(size_t)m * groups + g]));
                sum[m] = _mm256_add_pd(sum[m], _mm256_mul_pd(scales, _mm256_cvtepi32_pd(less)));
            }
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                at[r] += form.bytes;
        }
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            double of[TM_ROWS];
            _mm256_storeu_pd(of, sum[m]);
            for (size_t r = 0; r < there; r++)
                tm_group_store(args, (size_t)m, n + r, of[r]);
        }
    }
}

/* Like tm_groups_one, for 1 to `most` rows of activations, at most TM_FEW: same products, same order of additions. With
 * several rows the prefetch level is tested at run time: three copies of each loop would take that much longer to
 * compile. */
static inline __attribute__((always_inline)) void tm_groups_rows_few(
    const int most, const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, size_t scale_at,
    const int8_t *x, size_t lda, tm_group_rows sums)
{
    const tm_prefetch fetch = tm_rows_prefetch(args->K);
#define FEW(level, ahead, count) tm_groups_rows_by(level, ahead, count, args, begin, end, form, scale_at, x, lda, sums)
    if (args->M == 1)
        TM_PREFETCHED(fetch, FEW(level, ahead, 1));
    else if (most == 2 || args->M == 2)
        FEW(fetch.level, fetch.bytes, 2);
    else if (most == 3 || args->M == 3)
        FEW(fetch.level, fetch.bytes, 3);
    else
        FEW(fetch.level, fetch.bytes, 4);
#undef FEW
}

#endif
