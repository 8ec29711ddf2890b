/* One row of activations times formats with a scale for each group of weights, four groups at a time: what several of
 * them share with AVX2 and what is above it. Included behind TM_BEGIN, and compiled for the including file's set.
 *
 * Weights are fetched ahead as those of tile64 are, but not on Zen 4 (ternary_matmul.h). Time over that without, weights from
 * memory, by turns, outside of the project (2560 x 6912, 6912 x 2560, 4096 x 14336); with AVX-512 they go this way where rows
 * are long:
 *                                            tq2_0           tq1_0           q2_0 (q2_0.h)
 *   Intel Xeon (Emerald Rapids)  1 thread    0.64 to 0.67    0.71 to 0.80    0.66 to 0.72
 *     AVX-512                   16 threads   0.72 to 0.79    0.81 to 0.90    0.71 to 0.78
 *   AMD Zen 3, AVX2              1 thread    0.79 to 0.84    0.96 to 0.98    0.82 to 0.87
 *                                2 threads   0.79 to 0.84    0.94 to 0.95    0.85 to 0.89
 * In the caches it is 0.91 to 1.05. A loop that looked at the level in each round took 1.01 to 1.03 of the time with tq2_0
 * there, on Zen 3, and 1.00 to 1.01 with q2_0: so it is compiled for each level. */
#ifndef TM_FOURS_H
#define TM_FOURS_H

#include "groups.h"

enum { TM_FOUR = 4 };

/* sum(code * x) of each of four groups that follow each other; `arranged` is the row's share in the order in which the
 * format meets it. */
typedef __m128i (*tm_group_four)(const uint8_t *groups, const int8_t *arranged);

/* The float16 scales at byte `scale_at` of each of four groups. */
static inline __attribute__((always_inline)) __m256d tm_four_scales(const uint8_t *const *groups, size_t scale_at)
{
    uint64_t stored = 0; /* in a register: loads do not see what narrower stores before them wrote */
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++) {
        uint16_t bits;
        memcpy(&bits, groups[i] + scale_at, sizeof bits);
        stored |= (uint64_t)bits << 16 * i;
    }
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)stored)));
}

/* The products of the sums of four groups and their scales, which are float16 at byte `scale_at` of each. */
static inline __attribute__((always_inline)) void tm_four_products(
    const uint8_t *groups, size_t bytes, size_t scale_at, __m128i sums, const int32_t *act_sums,
    double products[TM_FOUR])
{
    const uint8_t *const at[TM_FOUR] = {groups, groups + bytes, groups + 2 * bytes, groups + 3 * bytes};
    const __m128i less = _mm_sub_epi32(sums, _mm_loadu_si128((const __m128i *)act_sums));
    _mm256_storeu_pd(products, _mm256_mul_pd(tm_four_scales(at, scale_at), _mm256_cvtepi32_pd(less)));
}

static inline __attribute__((always_inline)) void tm_groups_fours_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_ternary_matmul_args *args, size_t begin, size_t end,
    tm_grouped form, size_t scale_at, tm_group_one one, tm_group_four four, const int8_t *arranged, const int8_t *last)
{
    const size_t groups = args->K / form.weights, rest = groups % TM_FOUR, whole = groups - rest;
    const size_t rows = TM_ROWS * end < args->N ? TM_ROWS * end : args->N;
    for (size_t n = TM_ROWS * begin; n < rows; n++) {
        const uint8_t *const row = args->weights + n * groups * form.bytes;
        double products[TM_FOUR], sum = 0;
        for (size_t g = 0; g < whole; g += TM_FOUR) {
            const uint8_t *at = row + g * form.bytes;
            tm_prefetch_lines(at, TM_FOUR * form.bytes, level, ahead);
            tm_four_products(
                at, form.bytes, scale_at, four(at, arranged + g * form.weights), args->act_sums + g, products);
#pragma GCC unroll 4
            for (int i = 0; i < TM_FOUR; i++)
                sum += products[i];
        }
        if (last && rest && whole) {
            const size_t g = groups - TM_FOUR;
            const uint8_t *at = row + g * form.bytes;
            tm_four_products(at, form.bytes, scale_at, four(at, last), args->act_sums + g, products);
            for (size_t i = TM_FOUR - rest; i < TM_FOUR; i++)
                sum += products[i];
        } else
            for (size_t g = whole; g < groups; g++) {
                const uint8_t *at = row + g * form.bytes;
                const int32_t part = one(at, args->a + g * form.weights) - args->act_sums[g];
                sum += (double)form.scale(at) * (double)part;
            }
        tm_group_store(args, 0, n, sum);
    }
}

/* As tm_groups_one: the same products, added in the same order. `arranged` has the row, `last` its last four groups once
 * more: where their number is no multiple of four the last four are made together, and those that were added already
 * are left out. Where `last` is NULL what is left is made group after group. */
static inline __attribute__((always_inline)) void tm_groups_fours(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, size_t scale_at, tm_group_one one,
    tm_group_four four, const int8_t *arranged, const int8_t *last)
{
    TM_PREFETCHED(
        tm_weights_prefetch(tm_weights_plain),
        tm_groups_fours_by(level, ahead, args, begin, end, form, scale_at, one, four, arranged, last));
}

#endif
