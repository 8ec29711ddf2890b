/* Shared by AVX2 and AVX-VNNI for q2_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_Q2_0_AVX2_H
#define TM_Q2_0_AVX2_H

#include "../panels_avx2.h"
#include "../rows_avx2.h"

enum { TM_Q2_0_FEW = 1 };
#include "arrange_avx2.h"

/* The codes of two groups, or of one twice. */
static inline __m256i tm_q2_0_two(const uint8_t *groups, int both)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(groups + TM_Q2_0_CODES))),
        _mm_loadu_si128((const __m128i *)(groups + both * TM_Q2_0_BYTES + TM_Q2_0_CODES)), 1);
}

/* Each half holds a group's sum, in four parts. */
static inline __attribute__((always_inline)) __m256i tm_q2_0_of_two(__m256i w, const int8_t *x)
{
    tm_dots sum = {0};
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++)
        sum = tm_dots_added(sum, tm_panel_codes(w, s), _mm256_loadu_si256((const __m256i *)(x + 64 * s)));
    return tm_dots_sum(sum);
}

static inline __attribute__((always_inline)) double tm_q2_0_by_four(
    const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums)
{
    uint64_t halves = 0;
    int32_t of_x[TM_Q2_0_FOUR] = {0};
#pragma GCC unroll 4
    for (size_t g = 0; g < TM_Q2_0_FOUR; g++)
        halves |= g < count ? (uint64_t)tm_q2_0_stored(groups + g * TM_Q2_0_BYTES) << (16 * g) : 0;
    memcpy(of_x, act_sums, count * sizeof of_x[0]);
    /* A group that is read twice at the end of a row meets activations of 0. */
    const __m256i low = tm_q2_0_of_two(tm_q2_0_two(groups, count > 1), x);
    const __m256i high =
        count > 2 ? tm_q2_0_of_two(tm_q2_0_two(groups + 2 * TM_Q2_0_BYTES, count > 3), x + 32) : _mm256_setzero_si256();
    const __m256i pairs = _mm256_hadd_epi32(low, high), halved = _mm256_hadd_epi32(pairs, pairs);
    const __m128i sums = _mm_unpacklo_epi32(_mm256_castsi256_si128(halved), _mm256_extracti128_si256(halved, 1));
    const __m128i parts = _mm_sub_epi32(sums, _mm_loadu_si128((const __m128i *)of_x));
    const __m256d scales = _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)halves)));
    return tm_q2_0_summed(_mm256_mul_pd(scales, _mm256_cvtepi32_pd(parts)));
}

/* The scales of groups 0, 4, 8 and 12 from `groups`, and those of 1, 5, 9 and 13: words 0 and 9 of 32 bytes that begin
 * with a group; word 9 is word 1 of the upper half. */
static inline __attribute__((always_inline)) __m256 tm_q2_0_scales(const uint8_t *groups)
{
    __m256i w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_loadu_si256((const __m256i *)(groups + i * TM_Q2_0_FOUR * TM_Q2_0_BYTES));
    const __m256i words = _mm256_unpacklo_epi32(_mm256_unpacklo_epi16(w[0], w[1]), _mm256_unpacklo_epi16(w[2], w[3]));
    return _mm256_cvtph_ps(_mm_blend_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1), 0xc));
}

/* Four fours at a time: two groups of each are in one vector, so fours are added as whole vectors. `act_sums` are in
 * the order of tm_q2_0_across. */
static inline __attribute__((always_inline)) void tm_q2_0_by_sixteen(
    const uint8_t *groups, const int8_t *x, const int32_t *act_sums, double fours[TM_Q2_0_FOUR])
{
    __m256d p[2][2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        const uint8_t *const at = groups + 2 * j * TM_Q2_0_BYTES;
        __m256i v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v[i] =
                tm_q2_0_of_two(tm_q2_0_two(at + i * TM_Q2_0_FOUR * TM_Q2_0_BYTES, 1), x + i * TM_Q2_0_BLOCK + 32 * j);
        const __m256i sums =
            _mm256_sub_epi32(tm_half_sums_of(v), _mm256_loadu_si256((const __m256i *)(act_sums + 8 * j)));
        const __m256 scales = tm_q2_0_scales(at);
        p[j][0] = _mm256_mul_pd(
            _mm256_cvtps_pd(_mm256_castps256_ps128(scales)), _mm256_cvtepi32_pd(_mm256_castsi256_si128(sums)));
        p[j][1] = _mm256_mul_pd(
            _mm256_cvtps_pd(_mm256_extractf128_ps(scales, 1)), _mm256_cvtepi32_pd(_mm256_extracti128_si256(sums, 1)));
    }
    _mm256_storeu_pd(fours, _mm256_add_pd(_mm256_add_pd(p[0][0], p[0][1]), _mm256_add_pd(p[1][0], p[1][1])));
}

/* Puts sum 4 * i + j of each 16 sums of the one row of activations at 4 * j + i. */
static void tm_q2_0_across(const tm_ternary_matmul_args *args)
{
    const size_t groups = args->K / TM_Q2_0_GROUP, sixteen = TM_Q2_0_FOUR * TM_Q2_0_FOUR;
    for (size_t g = 0; g + sixteen <= groups; g += sixteen) {
        int32_t sums[TM_Q2_0_FOUR][TM_Q2_0_FOUR];
        memcpy(sums, args->act_sums + g, sizeof sums);
        for (size_t i = 0; i < sixteen; i++)
            args->act_sums[g + i] = sums[i % TM_Q2_0_FOUR][i / TM_Q2_0_FOUR];
    }
}

/* Dword d shifted by 2 * s meets the four activations from 16 * s + 4 * d, in the order of q2_0.h. */
static inline __attribute__((always_inline)) void tm_q2_0_decode(const uint8_t *const *groups, tm_panel_step *codes)
{
#pragma GCC unroll 2
    for (int v = 0; v < TM_PANEL_VECTORS; v++) {
        __m256i w[4];
        tm_panel_dwords(groups + 8 * v, TM_Q2_0_CODES, w);
#pragma GCC unroll 4
        for (int d = 0; d < 4; d++)
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
                codes[4 * s + d][v] = tm_panel_codes(w[d], s);
    }
}

static void tm_q2_0_panel(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    const tm_paneled how = {tm_q2_0_decode, TM_Q2_0_GROUP, TM_Q2_0_BYTES, 0, TM_Q2_0_FOUR};
    tm_panel(args, n, count, first, last, how);
}

static void tm_q2_0_body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args moved = tm_q2_0_moved(given);
    if (moved.M == 1)
        tm_q2_0_one(&moved, 0, moved.a, begin, end, tm_q2_0_by_four, tm_q2_0_by_sixteen);
    else
        tm_panels(&moved, begin, end, TM_Q2_0_UNIT, TM_PANEL, TM_PANEL_SUMS, tm_q2_0_panel);
}

static int tm_q2_0_arranged_run(tm_ternary_matmul_args *args, int32_t rank)
{
    tm_q2_0_arrange(args);
    if (args->M == 1) {
        tm_group_sums(args, TM_Q2_0_GROUP);
        tm_q2_0_across(args);
        return tm_matmul_run_by(args, TM_Q2_0_UNIT, tm_q2_0_body, rank);
    }
    const tm_ternary_matmul_args moved = tm_q2_0_moved(args);
    tm_panel_begin(&moved, TM_Q2_0_GROUP, 0, tm_panel_starts);
    return tm_matmul_run_by(args, TM_Q2_0_UNIT, tm_q2_0_body, rank);
}

#endif
