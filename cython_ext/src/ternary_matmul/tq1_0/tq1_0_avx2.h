/* Shared by AVX2 and AVX-VNNI for tq1_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_TQ1_0_AVX2_H
#define TM_TQ1_0_AVX2_H

#include "../fours.h"
#include "../panels_avx2.h"
#include "../rows_avx2.h"
#include "tail_avx2.h"

static inline float tm_tq1_0_scale(const uint8_t *group) { return _cvtsh_ss(tm_tq1_0_stored(group)); }

/* Digit 0 of q is 0 up to 85, 1 up to 170, 2 above: with r = max(q - 1, 0), the top two bits of avg(r, avg(r, 0)),
 * where avg rounds up. */
static inline __m256i tm_tq1_0_digit(__m256i q)
{
    const __m256i r = _mm256_subs_epu8(q, _mm256_set1_epi8(1));
    const __m256i top = _mm256_avg_epu8(r, _mm256_avg_epu8(r, _mm256_setzero_si256()));
    return _mm256_and_si256(_mm256_srli_epi16(top, 6), _mm256_set1_epi8(3));
}

/* A group is 8 vectors of 32 bytes; digit 0 of each is that of 32 adjacent weights. */
static inline int32_t tm_tq1_0_one(const uint8_t *group, const int8_t *x)
{
    __m256i q[8];
    tm_dots s = {0};
    q[0] = _mm256_loadu_si256((const __m256i *)group);
#pragma GCC unroll 4
    for (int n = 1; n < 5; n++)
        q[n] = tm_thrice(q[n - 1]);
    tm_tq1_0_last(group, q + 5);
#pragma GCC unroll 8
    for (int n = 0; n < 8; n++)
        s = tm_dots_added(s, tm_tq1_0_digit(q[n]), _mm256_loadu_si256((const __m256i *)(x + 32 * n)));
    return tm_sum_of(tm_dots_sum(s));
}

/* Products of a vector's first `digits` digits and the consecutive activations at `x`. */
static inline __attribute__((always_inline)) tm_dots tm_tq1_0_dots(tm_dots s, __m256i q, int digits, const int8_t *x)
{
#pragma GCC unroll 5
    for (int n = 0; n < digits; n++)
        s = tm_dots_added(s, tm_digit_taken(&q), _mm256_loadu_si256((const __m256i *)(x + 32 * n)));
    return s;
}

/* The second parts of two groups share a vector, a half each; the third parts of four share a half, a dword each. */
static inline __attribute__((always_inline)) __m128i tm_tq1_0_four(const uint8_t *groups, const int8_t *arranged)
{
    const __m256i bias = _mm256_set1_epi8((char)128);
    const tm_dots none = {0};
    __m256i s_i32x8[TM_FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++) {
        const __m256i q = _mm256_loadu_si256((const __m256i *)(groups + i * TM_TQ1_0_BYTES));
        s_i32x8[i] = tm_dots_sum(tm_tq1_0_dots(none, _mm256_xor_si256(q, bias), 5, arranged + 160 * i));
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < TM_FOUR; i += 2) {
        const uint8_t *at = groups + i * TM_TQ1_0_BYTES + TM_TQ1_0_SECOND;
        const __m256i q = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at)),
            _mm_loadu_si128((const __m128i *)(at + TM_TQ1_0_BYTES)), 1);
        const __m256i both = tm_dots_sum(tm_tq1_0_dots(none, _mm256_xor_si256(q, bias), 5, arranged + 640 + 80 * i));
        const __m256i zero = _mm256_setzero_si256();
        s_i32x8[i] = _mm256_add_epi32(s_i32x8[i], _mm256_blend_epi32(both, zero, 0xf0));
        s_i32x8[i + 1] = _mm256_add_epi32(s_i32x8[i + 1], _mm256_blend_epi32(both, zero, 0x0f));
    }
    int32_t thirds[TM_FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++)
        memcpy(thirds + i, groups + i * TM_TQ1_0_BYTES + TM_TQ1_0_THIRD, sizeof thirds[0]);
    const __m128i q =
        _mm_xor_si128(_mm_setr_epi32(thirds[0], thirds[1], thirds[2], thirds[3]), _mm256_castsi256_si128(bias));
    const __m256i first = _mm256_inserti128_si256(_mm256_castsi128_si256(q), _mm_add_epi8(_mm_add_epi8(q, q), q), 1);
    const tm_dots half = tm_tq1_0_dots(none, first, 1, arranged + 960);
    const __m256i t = tm_dots_sum(tm_tq1_0_dots(half, tm_thrice(tm_thrice(first)), 1, arranged + 992));
    return _mm_add_epi32(tm_sums_of(s_i32x8), _mm_add_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1)));
}

/* Each four groups of a row of activations in the order that tm_tq1_0_four uses. */
static void tm_tq1_0_arrange(const tm_ternary_matmul_args *args)
{
    int8_t *to = tm_tq1_0_arranged(args);
    for (size_t k = 0; k + TM_FOUR * TM_TQ1_0_GROUP <= args->K; k += TM_FOUR * TM_TQ1_0_GROUP) {
        for (size_t i = 0; i < TM_FOUR; i++, to += 160)
            memcpy(to, args->a + k + i * TM_TQ1_0_GROUP, 160);
        for (size_t i = 0; i < TM_FOUR; i += 2)
            for (size_t n = 0; n < 5; n++, to += 32) {
                const int8_t *from = args->a + k + i * TM_TQ1_0_GROUP + 160 + 16 * n;
                memcpy(to, from, 16);
                memcpy(to + 16, from + TM_TQ1_0_GROUP, 16);
            }
        for (size_t n = 0; n < 4; n++)
            for (size_t i = 0; i < TM_FOUR; i++, to += 4)
                memcpy(to, args->a + k + i * TM_TQ1_0_GROUP + 240 + 4 * n, 4);
    }
}

/* Digits of `count` dwords of each row of a part that has `part` of them. */
static inline __attribute__((always_inline)) void tm_tq1_0_part(
    const __m256i *dwords, int count, int part, int digits, tm_panel_step *codes, int v)
{
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        __m256i q = _mm256_xor_si256(dwords[i], _mm256_set1_epi8((char)128));
#pragma GCC unroll 5
        for (int n = 0; n < digits; n++)
            codes[n * part + i][v] = tm_digit_taken(&q);
    }
}

static inline __attribute__((always_inline)) void tm_tq1_0_decode(const uint8_t *const *groups, tm_panel_step *codes)
{
#pragma GCC unroll 2
    for (int v = 0; v < TM_PANEL_VECTORS; v++) {
        const uint8_t *const *rows = groups + 8 * v;
        __m256i w[4];
        tm_panel_dwords(rows, 0, w);
        tm_tq1_0_part(w, 4, 8, 5, codes, v);
        tm_panel_dwords(rows, 16, w);
        tm_tq1_0_part(w, 4, 8, 5, codes + 4, v);
        tm_panel_dwords(rows, TM_TQ1_0_SECOND, w);
        tm_tq1_0_part(w, 4, 4, 5, codes + 40, v);
        tm_panel_dwords(rows, TM_TQ1_0_THIRD - 12, w); /* bytes behind the last group must not be read */
        tm_tq1_0_part(w + 3, 1, 1, 4, codes + 60, v);
    }
}

static void tm_tq1_0_panel(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    const tm_paneled how = {tm_tq1_0_decode, TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, TM_TQ1_0_SCALE, 1};
    tm_panel(args, n, count, first, last, how);
}

static void tm_tq1_0_body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const tm_grouped form = {TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, tm_tq1_0_scale};
    if (args->M == 1)
        tm_groups_fours(
            args, begin, end, form, TM_TQ1_0_SCALE, tm_tq1_0_one, tm_tq1_0_four, tm_tq1_0_arranged(args), NULL);
    else
        tm_panels(args, begin, end, TM_ROWS, TM_PANEL, TM_PANEL_SUMS, tm_tq1_0_panel);
}

static int tm_tq1_0_run(tm_ternary_matmul_args *args, int32_t rank)
{
    if (args->M == 1)
        tm_tq1_0_arrange(args);
    return tm_panel_run(args, TM_TQ1_0_GROUP, TM_ROWS, tm_tq1_0_body, rank);
}

#endif
