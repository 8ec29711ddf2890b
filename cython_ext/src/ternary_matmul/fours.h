/* One row of activations times formats with a scale for each group of weights, four groups at a time. Shared by several
 * formats with AVX2 and above. Included behind TM_BEGIN, and compiled for the including file's instruction set.
 *
 * Weights are prefetched like those of tile64, but not on Zen 4 (ternary_matmul.h). The loop is compiled for each
 * prefetch level: a test of the level in each iteration is slower in the caches. With AVX-512 only long rows of weights
 * come here.
 *
 * Rates: `python suites/performance/gemv.py --format tq2_0 --no-peers`. See docs/kernels/panels.md. */
#ifndef TM_FOURS_H
#define TM_FOURS_H

#include "groups.h"

enum { TM_FOUR = 4 };

/* sum(code * x) of each of four consecutive groups; `arranged` is the row's share in the order that the format uses. */
typedef __m128i (*tm_group_four)(const uint8_t *groups, const int8_t *arranged);

/* The float16 scales at byte `scale_at` of each of four groups. */
static inline __attribute__((always_inline)) __m256d tm_four_scales(const uint8_t *const *groups, size_t scale_at)
{
    uint64_t stored = 0; /* in a register: a load cannot be forwarded from several narrower stores */
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++) {
        uint16_t bits;
        memcpy(&bits, groups[i] + scale_at, sizeof bits);
        stored |= (uint64_t)bits << 16 * i;
    }
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)stored)));
}

/* The products of the sums of four groups and their float16 scales, at byte `scale_at` of each. */
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

/* Like tm_groups_one: same products, same order of additions. `arranged` is the row, `last` its last four groups once
 * more: if their number is not a multiple of four, the last four are computed together, and those already added are
 * left out. If `last` is NULL, the rest is computed group by group. */
static inline __attribute__((always_inline)) void tm_groups_fours(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, tm_grouped form, size_t scale_at, tm_group_one one,
    tm_group_four four, const int8_t *arranged, const int8_t *last)
{
    TM_PREFETCHED(
        tm_weights_prefetch(tm_weights_plain),
        tm_groups_fours_by(level, ahead, args, begin, end, form, scale_at, one, four, arranged, last));
}

#endif
