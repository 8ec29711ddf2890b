/* Several rows of activations times formats with a scale for each group of weights, by panels of 16 rows of weights, one
 * to a lane, so that no sum crosses lanes. A quarter of a group at a time, 16 vectors of codes that meet four activations
 * each from memory, stays in registers for all rows of activations. Included behind TM_BEGIN. */
#ifndef TM_PANELS_AVX512_H
#define TM_PANELS_AVX512_H

#include "panels.h"

enum {
    TM_PANEL_QUARTERS = 4,
    TM_PANEL_CODES = 16, /* vectors of a quarter */
    TM_PANEL_SUMS = 32 /* rows of activations between two walks over a panel of weights; their sums are on the stack */
};

/* Dword i of the 16 bytes from byte `at` on of each row, in w[i]. */
static inline __attribute__((always_inline)) void tm_panel_dwords(const uint8_t *const *rows, size_t at, __m512i w[4])
{
    __m512i of[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* the rows j, 4 + j, 8 + j and 12 + j */
        of[j] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[j] + at)));
        of[j] = _mm512_inserti32x4(of[j], _mm_loadu_si128((const __m128i *)(rows[4 + j] + at)), 1);
        of[j] = _mm512_inserti32x4(of[j], _mm_loadu_si128((const __m128i *)(rows[8 + j] + at)), 2);
        of[j] = _mm512_inserti32x4(of[j], _mm_loadu_si128((const __m128i *)(rows[12 + j] + at)), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(of[0], of[1]), b = _mm512_unpacklo_epi32(of[2], of[3]);
    const __m512i c = _mm512_unpackhi_epi32(of[0], of[1]), d = _mm512_unpackhi_epi32(of[2], of[3]);
    w[0] = _mm512_unpacklo_epi64(a, b);
    w[1] = _mm512_unpackhi_epi64(a, b);
    w[2] = _mm512_unpacklo_epi64(c, d);
    w[3] = _mm512_unpackhi_epi64(c, d);
}

/* The same of 2-bit codes: codes[4 * i + s] has what a shift by 2 * s brings down to the lowest bits of w[i]'s bytes. */
static inline __attribute__((always_inline)) void tm_panel_codes(
    const uint8_t *const *rows, size_t at, __m512i codes[TM_PANEL_CODES])
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i w[4];
    tm_panel_dwords(rows, at, w);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            codes[4 * i + s] = _mm512_and_si512(_mm512_srli_epi16(w[i], (unsigned)(2 * s)), m3);
}

/* The scales of a group of each row, float16 at byte `at`. */
static inline void tm_panel_scales(const uint8_t *const *rows, size_t at, __m512d scales[2])
{
    uint16_t halves[TM_PANEL];
    for (int r = 0; r < TM_PANEL; r++)
        memcpy(halves + r, rows[r] + at, sizeof halves[0]);
    const __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
    scales[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(wide));
    scales[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(wide, 1));
}

/* What a format adds to the loops: `prepare` decodes a group of each row, if it must, into `room`; `codes` gives a
 * quarter; the activations that meet vector i of it begin at `where(quarter, i)` of the group's; `shift` is what the codes
 * lie above their place by, and `room` has so many bytes. */
typedef struct tm_paneled {
    void (*prepare)(const uint8_t *const *groups, uint8_t *room);
    void (*codes)(const uint8_t *const *groups, const uint8_t *room, int quarter, __m512i codes[TM_PANEL_CODES]);
    size_t (*where)(int quarter, int i);
    size_t scale_at;
    unsigned shift;
} tm_paneled;

/* Rows [n, n + count) of the weights with rows [first, last) of the activations. As tm_groups_rows: the same products,
 * added in the same order. */
static inline __attribute__((always_inline)) void tm_panel(
    const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last, tm_grouped form,
    tm_paneled how, uint8_t *room)
{
    const size_t groups = args->K / form.weights;
    __m512i sums[TM_PANEL_SUMS];
    __m512d totals[TM_PANEL_SUMS][2];
    for (size_t m = 0; m < last - first; m++)
        totals[m][0] = totals[m][1] = _mm512_setzero_pd();
    const uint8_t *at[TM_PANEL];
    tm_panel_rows(args, n, count, groups * form.bytes, at);
    for (size_t g = 0; g < groups; g++) {
        tm_panel_ahead(at, args->weights + n * groups * form.bytes, groups * form.bytes, g * form.bytes, form.bytes);
        if (how.prepare)
            how.prepare(at, room);
#pragma GCC unroll 4
        for (int quarter = 0; quarter < TM_PANEL_QUARTERS; quarter++) {
            __m512i codes[TM_PANEL_CODES];
            how.codes(at, room, quarter, codes);
            for (size_t m = 0; m < last - first; m++) {
                const int8_t *x = args->a + (first + m) * args->lda + g * form.weights;
                __m512i s_i32x16[2] = {quarter ? sums[m] : _mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 16
                for (int i = 0; i < TM_PANEL_CODES; i++) {
                    int32_t four;
                    memcpy(&four, x + how.where(quarter, i), sizeof four);
                    s_i32x16[i % 2] = _mm512_dpbusd_epi32(s_i32x16[i % 2], codes[i], _mm512_set1_epi32(four));
                }
                sums[m] = _mm512_add_epi32(s_i32x16[0], s_i32x16[1]);
            }
        }
        __m512d scales[2];
        tm_panel_scales(at, how.scale_at, scales);
        for (size_t m = 0; m < last - first; m++) {
            const __m512i part = _mm512_sub_epi32(
                _mm512_srai_epi32(sums[m], how.shift), _mm512_set1_epi32(args->act_sums[(first + m) * groups + g]));
            const __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(part));
            const __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(part, 1));
            totals[m][0] = _mm512_add_pd(totals[m][0], _mm512_mul_pd(scales[0], low));
            totals[m][1] = _mm512_add_pd(totals[m][1], _mm512_mul_pd(scales[1], high));
        }
        for (size_t r = 0; r < TM_PANEL; r++)
            at[r] += form.bytes;
    }
    for (size_t m = 0; m < last - first; m++) {
        double of[TM_PANEL];
        _mm512_storeu_pd(of, totals[m][0]);
        _mm512_storeu_pd(of + 8, totals[m][1]);
        for (size_t r = 0; r < count; r++)
            tm_group_store(args, first + m, n + r, of[r]);
    }
}

#endif
