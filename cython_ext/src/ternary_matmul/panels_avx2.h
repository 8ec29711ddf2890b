/* Several rows of activations times formats with a scale for each group of weights, with AVX2 and AVX-VNNI. Included
 * behind TM_BEGIN and dots_maddubs.h or its replacement.
 *
 * Layout: panels of 16 rows of weights, two vectors of 8, one row to a lane, so no sum crosses lanes.
 *
 * Algorithm: 16 registers do not hold codes for all rows of activations, as those of panels_avx512.h do. So the codes
 * of 256 weights of each row are decoded into 4 KiB of the stack, in the order of the activations. They meet four rows
 * of activations at a time.
 *
 * Limit: the vector ports. Four weights of each row take 2 loads, 4 broadcasts and 8 products: 22 instructions with
 * maddubs.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx2`. Versions and what lost:
 * docs/kernels/panels.md. */
#ifndef TM_PANELS_AVX2_H
#define TM_PANELS_AVX2_H

#include "panels.h"

enum {
    TM_PANEL_SUMS = 64, /* rows of activations that pass a panel at once; their sums are on the stack */
    TM_PANEL_BLOCK = 4, /* rows of activations at once: 8 sums of the 16 registers */
    TM_PANEL_VECTORS = 2, /* of rows of weights */
    TM_PANEL_STEPS = 64, /* steps, of four weights of each row, that are decoded at once */
    TM_PANEL_GROUPS = 4 /* most groups that are decoded at once */
};

/* The codes of a step, for rows 0 to 7 of a panel and for rows 8 to 15. */
typedef __m256i tm_panel_step[TM_PANEL_VECTORS];

/* What a format provides: `decode` gives the codes of a group of each row, in the order of the activations. The
 * products of `together` groups are added first, as (p0 + p1) + (p2 + p3) for four, then to a row's sum. */
typedef struct tm_paneled {
    void (*decode)(const uint8_t *const *groups, tm_panel_step *codes);
    size_t weights, bytes, scale_at; /* of a group */
    int together; /* 1 or TM_PANEL_GROUPS */
} tm_paneled;

typedef struct tm_panel_decoded {
    tm_panel_step codes[TM_PANEL_STEPS];
    __m256d scales[TM_PANEL_GROUPS][TM_PANEL_VECTORS][2];
    int groups; /* `together`, or fewer at the end */
} tm_panel_decoded;

/* Sets w[i] to dword i of the 16 bytes at byte `at` of each of 8 rows. */
static inline __attribute__((always_inline)) void tm_panel_dwords(const uint8_t *const *rows, size_t at, __m256i w[4])
{
    __m256i of[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) /* rows j and 4 + j */
        of[j] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(rows[j] + at))),
            _mm_loadu_si128((const __m128i *)(rows[4 + j] + at)), 1);
    const __m256i a = _mm256_unpacklo_epi32(of[0], of[1]), b = _mm256_unpacklo_epi32(of[2], of[3]);
    const __m256i c = _mm256_unpackhi_epi32(of[0], of[1]), d = _mm256_unpackhi_epi32(of[2], of[3]);
    w[0] = _mm256_unpacklo_epi64(a, b);
    w[1] = _mm256_unpackhi_epi64(a, b);
    w[2] = _mm256_unpacklo_epi64(c, d);
    w[3] = _mm256_unpackhi_epi64(c, d);
}

/* Code `field` of each byte of 2-bit codes. */
static inline __attribute__((always_inline)) __m256i tm_panel_codes(__m256i w, int field)
{
    return _mm256_and_si256(_mm256_srli_epi16(w, 2 * field), _mm256_set1_epi8(3));
}

/* The scales of a group of each of 8 rows, float16 at byte `at`. */
static inline __attribute__((always_inline)) void tm_panel_scales(
    const uint8_t *const *rows, size_t at, __m256d scales[2])
{
    uint16_t halves[8];
    for (int r = 0; r < 8; r++)
        memcpy(halves + r, rows[r] + at, sizeof halves[0]);
    const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
    scales[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(wide));
    scales[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(wide, 1));
}

/* Decodes the next groups of each row, from `at`, and advances `at`. */
static inline __attribute__((always_inline)) void tm_panel_decode(
    const uint8_t **at, size_t left, tm_paneled how, tm_panel_decoded *to)
{
    to->groups = left < (size_t)how.together ? (int)left : how.together;
    for (int t = 0; t < to->groups; t++) {
        how.decode(at, to->codes + (size_t)t * how.weights / 4);
        for (int v = 0; v < TM_PANEL_VECTORS; v++)
            tm_panel_scales(at + 8 * v, how.scale_at, to->scales[t][v]);
        for (int r = 0; r < TM_PANEL; r++)
            at[r] += how.bytes;
    }
    for (int t = to->groups; t < how.together; t++)
        memset(to->scales[t], 0, sizeof to->scales[t]);
}

/* sums[m][v] = sum(weight * x) over `steps` steps of row m of the activations and each row of the panel. */
static inline __attribute__((always_inline)) void tm_panel_dots(
    const int count, const int steps, const tm_panel_step *codes, const int8_t *x, size_t lda, const int32_t *starts,
    size_t groups, __m256i sums[TM_PANEL_BLOCK][TM_PANEL_VECTORS])
{
    tm_dots s[TM_PANEL_BLOCK][TM_PANEL_VECTORS];
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        s[m][0] = s[m][1] = (tm_dots)_mm256_set1_epi32(starts[(size_t)m * groups]);
#pragma GCC unroll 2
    for (int i = 0; i < steps; i++) {
        const __m256i low = _mm256_load_si256(&codes[i][0]), high = _mm256_load_si256(&codes[i][1]);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            int32_t four;
            memcpy(&four, x + (size_t)m * lda + 4 * i, sizeof four);
            s[m][0] = tm_dots_added(s[m][0], low, _mm256_set1_epi32(four));
            s[m][1] = tm_dots_added(s[m][1], high, _mm256_set1_epi32(four));
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 2
        for (int v = 0; v < TM_PANEL_VECTORS; v++)
            sums[m][v] = tm_dots_sum(s[m][v]);
}

/* Multiplies rows [m, m + count) of the activations by the groups from g. `count` is a constant at each call, so that
 * sums stay in registers. */
static inline __attribute__((always_inline)) void tm_panel_block(
    const int count, const tm_ternary_matmul_args *args, size_t m, size_t g, tm_paneled how, const tm_panel_decoded *of,
    __m256d (*totals)[TM_PANEL_VECTORS][2])
{
    const size_t groups = args->K / how.weights;
    const int8_t *x = args->a + m * args->lda + g * how.weights;
    const int32_t *starts = args->act_sums + m * groups + g;
    const int steps = (int)how.weights / 4;
    __m256i sums[TM_PANEL_GROUPS][TM_PANEL_BLOCK][TM_PANEL_VECTORS];
#pragma GCC unroll 1
    for (int t = 0; t < of->groups; t++)
        tm_panel_dots(
            count, steps, of->codes + t * steps, x + (size_t)t * how.weights, args->lda, starts + t, groups, sums[t]);
    for (int t = of->groups; t < how.together; t++)
        memset(sums[t], 0, sizeof sums[t]);
#pragma GCC unroll 4
    for (int i = 0; i < count; i++)
#pragma GCC unroll 2
        for (int v = 0; v < TM_PANEL_VECTORS; v++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256d p[TM_PANEL_GROUPS];
#pragma GCC unroll 4
                for (int t = 0; t < how.together; t++) {
                    const __m256i s = sums[t][i][v];
                    const __m128i four = h ? _mm256_extracti128_si256(s, 1) : _mm256_castsi256_si128(s);
                    p[t] = _mm256_mul_pd(of->scales[t][v][h], _mm256_cvtepi32_pd(four));
                }
                if (how.together > 1)
                    p[0] = _mm256_add_pd(_mm256_add_pd(p[0], p[1]), _mm256_add_pd(p[2], p[3]));
                totals[i][v][h] = _mm256_add_pd(totals[i][v][h], p[0]);
            }
}

/* Multiplies rows [n, n + count) of the weights by rows [first, last) of the activations. `act_sums` holds the initial
 * sums. Same products and same order of additions as tm_groups_rows. */
static inline __attribute__((always_inline)) void tm_panel(
    const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last, tm_paneled how)
{
    const size_t groups = args->K / how.weights, row = groups * how.bytes;
    __m256d totals[TM_PANEL_SUMS][TM_PANEL_VECTORS][2];
    tm_panel_decoded decoded;
    const uint8_t *at[TM_PANEL];
    memset(totals, 0, sizeof totals[0] * (last - first));
    tm_rows_begin(args, n, count, row, TM_PANEL, at);
    for (size_t g = 0; g < groups; g += (size_t)how.together) {
        tm_panel_ahead(at, TM_PANEL, args->weights + n * row, row, g * how.bytes, (size_t)how.together * how.bytes);
        tm_panel_decode(at, groups - g, how, &decoded);
        for (size_t m = first; m < last; m += TM_PANEL_BLOCK)
            switch (last - m) {
            case 1: tm_panel_block(1, args, m, g, how, &decoded, totals + (m - first)); break;
            case 2: tm_panel_block(2, args, m, g, how, &decoded, totals + (m - first)); break;
            case 3: tm_panel_block(3, args, m, g, how, &decoded, totals + (m - first)); break;
            default: tm_panel_block(4, args, m, g, how, &decoded, totals + (m - first)); break;
            }
    }
    for (size_t m = first; m < last; m++) {
        double of[TM_PANEL];
        memcpy(of, totals[m - first], sizeof of);
        for (size_t r = 0; r < count; r++)
            tm_group_store(args, m, n + r, of[r]);
    }
}

/* Computes the initial sums of each group, in `act_sums`. */
static inline void tm_panel_starts(void *given, size_t begin, size_t end)
{
    const tm_panel_start *start = given;
    const tm_ternary_matmul_args *args = start->args;
    const size_t weights = start->weights, groups = args->K / weights;
    for (size_t m = begin; m < end; m++)
        for (size_t g = 0; g < groups; g++)
            args->act_sums[m * groups + g] = tm_dots_start(args->a + m * args->lda + g * weights, weights);
}

/* Runs one row of activations by groups, several by panels, rows of weights in units of `unit`. */
static inline int tm_panel_run(tm_ternary_matmul_args *args, size_t weights, size_t unit, tm_body body, int32_t rank)
{
    if (args->M == 1)
        return tm_groups_run(args, weights, body, rank);
    tm_panel_begin(args, weights, 0, tm_panel_starts);
    return tm_matmul_run_by(args, unit, body, rank);
}

#endif
