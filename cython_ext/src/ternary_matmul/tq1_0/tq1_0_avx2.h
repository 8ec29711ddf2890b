/* What AVX2 and AVX-VNNI share of tq1_0. Included behind TM_BEGIN and the sums of one of them. */
#ifndef TM_TQ1_0_AVX2_H
#define TM_TQ1_0_AVX2_H

#include "../panels_avx2.h"
#include "../rows_avx2.h"
#include "tail_avx2.h"

static inline float tm_tq1_0_scale(const uint8_t *group) { return _cvtsh_ss(tm_tq1_0_stored(group)); }

/* Digit 0 of q is 0 up to 85, 1 up to 170, and 2 from there: with r = max(q - 1, 0), the top two bits of avg(r, avg(r,
 * 0)), where avg rounds up. */
static inline __m256i tm_tq1_0_digit(__m256i q)
{
    const __m256i r = _mm256_subs_epu8(q, _mm256_set1_epi8(1));
    const __m256i top = _mm256_avg_epu8(r, _mm256_avg_epu8(r, _mm256_setzero_si256()));
    return _mm256_and_si256(_mm256_srli_epi16(top, 6), _mm256_set1_epi8(3));
}

/* A group is 8 vectors of 32 bytes whose digit 0 is that of 32 weights side by side. */
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

/* The digits of bytes that are 128 more than the format's, so that comparisons of signed bytes tell them; and 128 more than
 * the bytes whose digits are the next: 3 * 128 is 128 modulo 256. */
static inline __attribute__((always_inline)) __m256i tm_tq1_0_taken(__m256i *q)
{
    const __m256i some = _mm256_cmpgt_epi8(*q, _mm256_set1_epi8(85 - 128));
    const __m256i two = _mm256_cmpgt_epi8(*q, _mm256_set1_epi8(170 - 128));
    *q = tm_thrice(*q);
    return _mm256_abs_epi8(_mm256_add_epi8(some, two));
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
            codes[n * part + i][v] = tm_tq1_0_taken(&q);
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
        tm_panel_dwords(rows, TM_TQ1_0_THIRD - 12, w); /* what lies behind the last group may not be read */
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
        tm_groups_one(args, begin, end, form, tm_tq1_0_one);
    else
        tm_panels(args, begin, end, TM_ROWS, TM_PANEL, TM_PANEL_SUMS, tm_tq1_0_panel);
}

static int tm_tq1_0_run(tm_ternary_matmul_args *args, int32_t rank)
{
    return tm_panel_run(args, TM_TQ1_0_GROUP, TM_ROWS, tm_tq1_0_body, rank);
}

#endif
