/* Several rows of activations times formats with a scale for each group of weights, with AVX-512. Included behind
 * TM_BEGIN.
 *
 * Layout: panels of 16 or 32 rows of weights, one row to a lane of one vector or two, so no sum crosses lanes.
 *
 * Algorithm: 16 vectors of codes stay in registers for all rows of activations: two parts of a group with one vector of
 * rows, one part with two. Two vpdpbusd share a load of activations in panels of 32 rows, and four sums hide the
 * latency. Products with the scales are added in float64.
 *
 * Limit: vpdpbusd. From memory and with few rows of activations, panels of 32 rows are slower, so TM_PANEL_WIDE
 * decides.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx512`. Versions and what lost:
 * docs/kernels/panels.md. */
#ifndef TM_PANELS_AVX512_H
#define TM_PANELS_AVX512_H

#include "panels.h"

enum {
    TM_PANEL_VECTORS = 2, /* of rows of weights, at most */
    TM_PANEL_STEPS = 8, /* of a part of a group, four weights of each row each */
    TM_PANEL_SUMS = 64, /* rows of activations that pass a panel at once; their sums are on the stack */
    TM_PANEL_WIDE = 16 /* fewest rows of activations for panels of 32 rows of weights */
};

/* Sets w[i] to dword i of the 16 bytes at byte `at` of each of 16 rows. */
static inline __attribute__((always_inline)) void tm_panel_dwords(const uint8_t *const *rows, size_t at, __m512i w[4])
{
    __m512i of[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* rows j, 4 + j, 8 + j and 12 + j */
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

/* The codes of a part with 2-bit codes, two dwords of each row, by four shifts. */
static inline __attribute__((always_inline)) void tm_panel_two_bits(
    const __m512i *room, int part, __m512i codes[TM_PANEL_STEPS])
{
#pragma GCC unroll 8
    for (int i = 0; i < TM_PANEL_STEPS; i++)
        codes[i] =
            _mm512_and_si512(_mm512_srli_epi16(room[2 * part + i / 4], (unsigned)(2 * (i % 4))), _mm512_set1_epi8(3));
}

/* The scales of a group of each of 16 rows, float16 at byte `at`. */
static inline void tm_panel_scales(const uint8_t *const *rows, size_t at, __m512d scales[2])
{
    uint16_t halves[16];
    for (int r = 0; r < 16; r++)
        memcpy(halves + r, rows[r] + at, sizeof halves[0]);
    const __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
    scales[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(wide));
    scales[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(wide, 1));
}

/* What a format provides. `prepare` puts the dwords of a group of 16 rows, transposed, into `room`. A group has
 * `parts`, an even number. `codes` decodes a part, whose step i meets four activations at byte `where` of the group's;
 * codes lie `shift` bits above their place. `chains`: sums of a part of panels of 16 rows, 2, or 1 if that is faster.
 * The products of `together` groups, 1 or 4, are added first, as (p0 + p1) + (p2 + p3) for four, then to a row's
 * sum. */
typedef struct tm_paneled {
    void (*prepare)(const uint8_t *const *groups, __m512i *room);
    void (*codes)(const __m512i *room, int part, __m512i codes[TM_PANEL_STEPS]);
    size_t (*where)(int part, int i);
    size_t weights, bytes, scale_at; /* of a group */
    int parts, together, chains;
    unsigned shift;
} tm_paneled;

/* The codes of a group less 1, in bytes: four columns of all rows, then the next four. */
static inline __attribute__((always_inline)) void tm_panel_decoded(
    tm_paneled how, const uint8_t *const *groups, int8_t *to)
{
    __m512i room[16], codes[TM_PANEL_STEPS];
    how.prepare(groups, room);
#pragma GCC unroll 8
    for (int part = 0; part < how.parts; part++) {
        how.codes(room, part, codes);
#pragma GCC unroll 8
        for (int i = 0; i < TM_PANEL_STEPS; i++) {
            const __m512i code =
                how.shift ? _mm512_and_si512(_mm512_srli_epi16(codes[i], how.shift), _mm512_set1_epi8(3)) : codes[i];
            _mm512_store_si512(to + 16 * how.where(part, i), _mm512_sub_epi8(code, _mm512_set1_epi8(1)));
        }
    }
}

/* Sums of a row of activations with a panel: sums of the current group; p0 or p0 + p1, and p2, of the current groups;
 * and all before them. They lie side by side, so that few rows touch few pages of the stack. */
typedef struct tm_panel_sums {
    __m512i group[TM_PANEL_VECTORS];
    __m512d total[TM_PANEL_VECTORS][2], first[TM_PANEL_VECTORS][2], second[TM_PANEL_VECTORS][2];
} tm_panel_sums;

/* Adds a group's sums to those of a row; `nth` of the `together`. A product of a scale and a sum is exact, so a fused
 * multiply-add rounds like separate operations. */
static inline __attribute__((always_inline)) void tm_panel_add(
    const int vectors, tm_panel_sums *to, const __m512i *sums, __m512d (*scales)[2], int together, int nth,
    unsigned shift)
{
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m512i sum = shift ? _mm512_srai_epi32(sums[v], shift) : sums[v];
            const __m512d part =
                _mm512_cvtepi32_pd(h ? _mm512_extracti64x4_epi64(sum, 1) : _mm512_castsi512_si256(sum));
            __m512d *const total = &to->total[v][h], *const first = &to->first[v][h], *const second = &to->second[v][h];
            if (together == 1)
                *total = _mm512_fmadd_pd(scales[v][h], part, *total);
            else if (nth == 0)
                *first = _mm512_mul_pd(scales[v][h], part);
            else if (nth == 1)
                *first = _mm512_fmadd_pd(scales[v][h], part, *first);
            else if (nth == 2)
                *second = _mm512_mul_pd(scales[v][h], part);
            else
                *total = _mm512_add_pd(*total, _mm512_add_pd(*first, _mm512_fmadd_pd(scales[v][h], part, *second)));
        }
}

/* Multiplies two units (a part with both vectors, or two parts with one vector) by `some` rows of activations; `x` is
 * the first row's part of the group. `begin` and `last`: they are the group's first, and its last, after which
 * tm_panel_add is called. */
static inline __attribute__((always_inline)) void tm_panel_part(
    const int vectors, tm_paneled how, const int part, const int begin, const int last, const int nth,
    const __m512i (*room)[16], const int8_t *x, size_t lda, const int32_t *starts, size_t groups, size_t some,
    tm_panel_sums *sums, __m512d (*scales)[2])
{
    const int one = vectors == 1, chains = one ? how.chains : 2;
    __m512i codes[2][TM_PANEL_STEPS];
#pragma GCC unroll 2
    for (int u = 0; u < 2; u++)
        how.codes(room[one ? 0 : u], one ? part + u : part, codes[u]);
    for (size_t m = 0; m < some; m++, x += lda, starts += groups, sums++) {
        /* Two sums a unit hide the latency. */
        const __m512i zero = _mm512_setzero_si512();
        __m512i s_i32x16[2][2] = {{zero, zero}, {zero, zero}};
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            s_i32x16[v][0] = begin ? _mm512_set1_epi32(*starts) : sums->group[v];
#pragma GCC unroll 8
        for (int i = 0; i < TM_PANEL_STEPS; i++)
#pragma GCC unroll 2
            for (int u = 0; u < 2; u++) {
                int32_t four;
                memcpy(&four, x + how.where(one ? part + u : part, i), sizeof four);
                s_i32x16[u][i % chains] =
                    _mm512_dpbusd_epi32(s_i32x16[u][i % chains], codes[u][i], _mm512_set1_epi32(four));
            }
        __m512i of[2];
#pragma GCC unroll 2
        for (int u = 0; u < 2; u++)
            of[u] = chains > 1 ? _mm512_add_epi32(s_i32x16[u][0], s_i32x16[u][1]) : s_i32x16[u][0];
        if (one)
            of[0] = _mm512_add_epi32(of[0], of[1]);
        if (last)
            tm_panel_add(vectors, sums, of, scales, how.together, nth, how.shift);
        else
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sums->group[v] = of[v];
    }
}

/* Multiplies rows [n, n + count) of the weights by rows [first, last) of the activations. `act_sums` holds the initial
 * sums. Same products and same order of additions as tm_groups_rows. */
static inline __attribute__((always_inline)) void tm_panel(
    const int vectors, const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last,
    tm_paneled how)
{
    const size_t groups = args->K / how.weights, row = groups * how.bytes, some = last - first, lda = args->lda;
    const size_t rows = 16 * (size_t)vectors;
    const int taken = vectors > 1 ? 1 : 2; /* parts at a time */
    tm_panel_sums sums[TM_PANEL_SUMS];
    __m512i room[TM_PANEL_VECTORS][16];
    const uint8_t *at[TM_PANEL_MOST];
    for (size_t m = 0; m < some; m++)
        memset(sums[m].total, 0, sizeof sums[m].total);
    tm_rows_begin(args, n, count, row, rows, at);
    for (size_t g = 0; g < groups; g++) {
        const int8_t *x = args->a + first * lda + g * how.weights;
        const int32_t *starts = args->act_sums + first * groups + g;
        __m512d scales[TM_PANEL_VECTORS][2];
        if (g % (size_t)how.together == 0)
            tm_panel_ahead(at, rows, args->weights + n * row, row, g * how.bytes, (size_t)how.together * how.bytes);
        for (int v = 0; v < vectors; v++) {
            how.prepare(at + 16 * v, room[v]);
            tm_panel_scales(at + 16 * v, how.scale_at, scales[v]);
        }
        for (size_t r = 0; r < rows; r++)
            at[r] += how.bytes;
#pragma GCC unroll 8
        for (int part = 0; part + taken < how.parts; part += taken)
            tm_panel_part(vectors, how, part, part == 0, 0, 0, room, x, lda, starts, groups, some, sums, scales);
#define LAST(nth) \
    tm_panel_part( \
        vectors, how, how.parts - taken, how.parts == taken, 1, nth, room, x, lda, starts, groups, some, sums, scales)
        switch (g % (size_t)how.together) {
        case 0: LAST(0); break;
        case 1: LAST(1); break;
        case 2: LAST(2); break;
        default: LAST(3);
        }
#undef LAST
    }
    const size_t left = groups % (size_t)how.together;
    for (size_t m = 0; m < some; m++) {
        double of[TM_PANEL_MOST];
        for (int i = 0; i < 2 * vectors; i++) {
            __m512d total = sums[m].total[i / 2][i % 2];
            if (left == 3)
                total = _mm512_add_pd(total, _mm512_add_pd(sums[m].first[i / 2][i % 2], sums[m].second[i / 2][i % 2]));
            else if (left)
                total = _mm512_add_pd(total, sums[m].first[i / 2][i % 2]);
            _mm512_storeu_pd(of + 8 * i, total);
        }
        for (size_t r = 0; r < count; r++)
            tm_group_store(args, first + m, n + r, of[r]);
    }
}

/* Runs rows [begin, end) of the weights in units of `unit`. `narrow` and `wide`: tm_panel of 16 and 32 rows. The last
 * 16 rows or fewer take a narrow panel. */
static inline __attribute__((always_inline)) void tm_panels_by_rows(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t unit, tm_panel_by narrow, tm_panel_by wide)
{
    const size_t stop = unit * end < args->N ? unit * end : args->N;
    for (size_t first = 0; first < args->M; first += TM_PANEL_SUMS) {
        const size_t last = args->M - first < TM_PANEL_SUMS ? args->M : first + TM_PANEL_SUMS;
        size_t n = unit * begin;
        if (args->M >= TM_PANEL_WIDE)
            for (; n + 16 < stop; n += 32)
                wide(args, n, stop - n < 32 ? stop - n : 32, first, last);
        for (; n < stop; n += 16)
            narrow(args, n, stop - n < 16 ? stop - n : 16, first, last);
    }
}

/* Computes the initial sums of each group, in place of its activations' sum in `act_sums`; codes are w + 1. */
static inline void tm_panel_starts(void *given, size_t begin, size_t end)
{
    const tm_panel_start *start = given;
    const tm_ternary_matmul_args *args = start->args;
    const size_t groups = args->K / start->weights;
    for (size_t m = begin; m < end; m++)
        for (size_t g = 0; g < groups; g++) {
            const int8_t *a = args->a + m * args->lda + g * start->weights;
            __m512i sum = _mm512_setzero_si512();
            for (size_t k = 0; k < start->weights; k += 64)
                sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(a + k));
            args->act_sums[m * groups + g] = _mm512_reduce_add_epi32(sum) * -(1 << start->shift);
        }
}

/* Runs one row of activations by groups, several by panels. */
static inline int tm_panel_run(tm_ternary_matmul_args *args, size_t weights, unsigned shift, tm_body body, int32_t rank)
{
    if (args->M == 1)
        return tm_groups_run(args, weights, body, rank);
    tm_panel_begin(args, weights, shift, tm_panel_starts);
    return tm_matmul_run_by(args, TM_ROWS, body, rank);
}

#endif
