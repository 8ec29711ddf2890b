/* ternary_matmul of tq1_0 with AVX-512 VNNI.
 *
 * One row of activations: no digit is decoded. 3 * q = 256 * digit + (3 * q modulo 256), so the sum of the digits'
 * products is (3 * sum(q * x) - sum((3 * q modulo 256) * x)) / 256, exact in every lane. A lane of either sum is under
 * 5 * 4 * 255 * 128, and three times that fits int32. A group of four rows at a time (four_rows.h): their first 32
 * bytes are two vectors, the next 16 one, and each is stepped from digit to digit by 3 * q; all digits of the last 4
 * bytes are one vector. Rows of weights longer than TM_ROWS_LONG: four groups of one row (fours.h), with reordered
 * activations.
 *
 * Several rows: up to TM_TQ1_0_FEW in the same way, more by panels_avx512.h. There the bytes of 16 rows of weights are
 * transposed before their digits are decoded: 13 dwords a group and row instead of 64. With r = max(q - 1, 0), digit 0
 * of q is in the top two bits of avg(r, avg(r, 0)), where avg rounds up; it stays there, and the sums are shifted down
 * by 6.
 *
 * Limit: one row, two vpdpbusd and two additions for each 64 digits; several rows, about 510 instructions to decode a
 * group of 16 rows of weights, and 64 for each row of activations.
 *
 * Rates: `python suites/performance/gemv.py --format tq1_0 --no-peers --shapes 2560x2560 --threads 1`. Versions and
 * what lost: docs/kernels/tq1_0.md. */
#include "tq1_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../four_rows.h"
#include "../panels_avx512.h"
#include "../rows_avx512.h"

static inline float scale(const uint8_t *group) { return _cvtsh_ss(tm_tq1_0_stored(group)); }

static inline __m512i thrice(__m512i q) { return _mm512_add_epi8(_mm512_add_epi8(q, q), q); }

/* 3 * these - next: 256 times the sum of the digits' products. */
static inline __m512i scaled(__m512i these, __m512i next)
{
    return _mm512_sub_epi32(_mm512_add_epi32(_mm512_add_epi32(these, these), these), next);
}

/* 3 * sum(q * x) - sum((3 * q modulo 256) * x) over `count` digits of the bytes q: 256 times the digits' sum. */
static inline __attribute__((always_inline)) __m512i scaled_sums(const int count, __m512i q, const int8_t *x)
{
    __m512i these = _mm512_setzero_si512(), next = _mm512_setzero_si512();
#pragma GCC unroll 5
    for (int n = 0; n < count; n++) {
        const __m512i a_i8x64 = _mm512_loadu_si512(x + 64 * n);
        these = tm_dot_64(these, q, a_i8x64);
        q = thrice(q);
        next = tm_dot_64(next, q, a_i8x64);
    }
    return scaled(these, next);
}

/* The last 4 bytes of each of four groups, times 1, 3, 9 and 27 like tm_tq1_0_third, a quarter of the vector each. */
static inline __attribute__((always_inline)) __m512i thirds(const uint8_t *const *groups)
{
    int32_t of[TM_FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++)
        memcpy(of + i, groups[i] + TM_TQ1_0_THIRD, sizeof of[0]);
    const __m512i quarters = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const __m512i powers = _mm512_broadcast_i32x4(_mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27));
    const __m512i low = _mm512_set1_epi16(0x00ff);
    const __m512i q =
        _mm512_permutexvar_epi32(quarters, _mm512_zextsi128_si512(_mm_setr_epi32(of[0], of[1], of[2], of[3])));
    return _mm512_or_si512(
        _mm512_and_si512(_mm512_mullo_epi16(q, powers), low), _mm512_mullo_epi16(_mm512_andnot_si512(low, q), powers));
}

/* The 16 bytes before them, a quarter of the vector each. */
static inline __attribute__((always_inline)) __m512i seconds(const uint8_t *const *groups)
{
    __m512i q = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(groups[0] + TM_TQ1_0_SECOND)));
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const __m128i *)(groups[1] + TM_TQ1_0_SECOND)), 1);
    q = _mm512_inserti32x4(q, _mm_loadu_si128((const __m128i *)(groups[2] + TM_TQ1_0_SECOND)), 2);
    return _mm512_inserti32x4(q, _mm_loadu_si128((const __m128i *)(groups[3] + TM_TQ1_0_SECOND)), 3);
}

/* The sums of four groups, each in half of one of the pairs, or in a quarter of `rest`. */
static inline __m128i four_sums(__m512i first, __m512i second, __m512i rest)
{
    rest = _mm512_add_epi32(rest, _mm512_shuffle_i64x2(first, second, 0x88));
    rest = _mm512_add_epi32(rest, _mm512_shuffle_i64x2(first, second, 0xdd));
    return tm_sums_of_quarters(_mm512_srai_epi32(rest, 8));
}

static inline __attribute__((always_inline)) __m128i four(const uint8_t *groups, const int8_t *arranged)
{
    const uint8_t *const at[TM_FOUR] = {
        groups, groups + TM_TQ1_0_BYTES, groups + 2 * TM_TQ1_0_BYTES, groups + 3 * TM_TQ1_0_BYTES};
    __m512i pair[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        pair[i] = scaled_sums(
            5, tm_halves((const int8_t *)at[2 * i], (const int8_t *)at[2 * i + 1]), arranged + TM_TQ1_0_PAIR * i);
    const int8_t *const rest = arranged + 2 * TM_TQ1_0_PAIR;
    const __m512i s_i32x16 =
        _mm512_add_epi32(scaled_sums(5, seconds(at), rest), scaled_sums(1, thirds(at), rest + 5 * 64));
    return four_sums(pair[0], pair[1], s_i32x16);
}

/* Multiplies one digit of the bytes `q` by its activations, for all of `these`, then steps the bytes for `next`. */
static inline __attribute__((always_inline)) void digits_met(
    const int count, __m512i *q, const __m512i *a, __m512i *these, __m512i *next)
{
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        these[m] = tm_dot_64(these[m], *q, a[m]);
    *q = thrice(*q);
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        next[m] = tm_dot_64(next[m], *q, a[m]);
}

/* The sums of a group of four rows. */
static inline __attribute__((always_inline)) void four_rows(
    const int count, const uint8_t *const *groups, const int8_t *x, size_t lda, __m128i *sums)
{
    __m512i q[2], a[TM_FEW], these[3][TM_FEW], next[3][TM_FEW];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            these[i][m] = next[i][m] = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        q[i] = tm_halves((const int8_t *)groups[2 * i], (const int8_t *)groups[2 * i + 1]);
#pragma GCC unroll 5
    for (int n = 0; n < 5; n++) {
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            a[m] = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(x + (size_t)m * lda + 32 * (size_t)n)));
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            digits_met(count, q + i, a, these[i], next[i]);
    }
    __m512i last = seconds(groups);
#pragma GCC unroll 6
    for (int n = 0; n < 6; n++) {
        if (n == 5)
            last = thirds(groups);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            a[m] =
                _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(x + (size_t)m * lda + 160 + 16 * (size_t)n)));
        digits_met(count, &last, a, these[2], next[2]);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        sums[m] = four_sums(
            scaled(these[0][m], next[0][m]), scaled(these[1][m], next[1][m]), scaled(these[2][m], next[2][m]));
}

static inline int32_t one(const uint8_t *group, const int8_t *x)
{
    const uint8_t *const same[TM_ROWS] = {group, group, group, group};
    __m128i sum;
    four_rows(1, same, x, 0, &sum);
    return _mm_cvtsi128_si32(sum);
}

/* Four groups of the activations in the order that `four` uses. */
static void arrange(int8_t *to, const int8_t *a)
{
    for (int pair = 0; pair < 2; pair++)
        for (int n = 0; n < 5; n++)
            for (int i = 0; i < 2; i++, to += 32)
                memcpy(to, a + (2 * pair + i) * TM_TQ1_0_GROUP + 32 * n, 32);
    for (int n = 0; n < 6; n++)
        for (int i = 0; i < TM_FOUR; i++, to += 16)
            memcpy(to, a + i * TM_TQ1_0_GROUP + 160 + 16 * n, 16);
}

static inline __m512i digit(__m512i q)
{
    const __m512i r = _mm512_subs_epu8(q, _mm512_set1_epi8(1));
    return _mm512_and_si512(
        _mm512_avg_epu8(r, _mm512_avg_epu8(r, _mm512_setzero_si512())), _mm512_set1_epi8((char)192));
}

/* The bytes of a group of each row, one row to a lane: 12 dwords of five digits, and the last one times 1, 3, 9 and
 * 27. */
static inline __attribute__((always_inline)) void prepare(const uint8_t *const *groups, __m512i *room)
{
    __m512i w[4];
#pragma GCC unroll 1
    for (int part = 0; part < 3; part++)
        tm_panel_dwords(groups, 16 * (size_t)part, room + 4 * part);
    tm_panel_dwords(groups, TM_TQ1_0_THIRD - 12, w); /* bytes behind the last group must not be read */
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++, w[3] = thrice(w[3]))
        room[12 + n] = w[3];
}

/* Two parts have 16 digits together: five of each of three dwords, and one of the last. The first part has half. */
static inline __attribute__((always_inline)) void part_codes(
    const __m512i *room, int part, __m512i codes[TM_PANEL_STEPS])
{
    const int half = part % 2;
    __m512i q[2] = {room[3 * (part / 2) + half], room[3 * (part / 2) + 1 + half]};
    if (half)
        q[0] = thrice(thrice(thrice(q[0])));
#pragma GCC unroll 8
    for (int i = 0; i < 8 - half; i++) {
        const int second = i >= (half ? 2 : 5);
        codes[i] = digit(q[second]);
        q[second] = thrice(q[second]);
    }
    if (half)
        codes[7] = digit(room[12 + part / 2]);
}

static inline __attribute__((always_inline)) size_t where(int part, int i)
{
    const int nth = 8 * (part % 2) + i, dword = 3 * (part / 2) + nth / 5, n = nth % 5;
    return (size_t)(nth == 15 ? 240 + 4 * (part / 2) : dword < 8 ? 32 * n + 4 * dword : 160 + 16 * n + 4 * (dword - 8));
}

enum { DIGIT_SHIFT = 6 };

static const tm_grouped FORM = {TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, scale};

static const tm_paneled PANELS = {prepare, part_codes, where, TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, TM_TQ1_0_SCALE,
                                  8,       1,          1,     DIGIT_SHIFT};

void tm_tq1_0_decoded_avx512(const uint8_t *const *groups, int8_t *to) { tm_panel_decoded(PANELS, groups, to); }

static void narrow(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    tm_panel(1, args, n, count, first, last, PANELS);
}

static void wide(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    tm_panel(2, args, n, count, first, last, PANELS);
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M > 1 ? args->M <= TM_TQ1_0_FEW : args->K <= TM_ROWS_LONG) {
        tm_groups_rows_few(TM_TQ1_0_FEW, args, begin, end, FORM, TM_TQ1_0_SCALE, args->a, args->lda, four_rows);
    } else if (args->M == 1) {
        const int8_t *arranged = tm_tq1_0_arranged(args);
        const size_t fours = args->K / (TM_FOUR * TM_TQ1_0_GROUP);
        tm_groups_fours(
            args, begin, end, FORM, TM_TQ1_0_SCALE, one, four, arranged, arranged + fours * TM_FOUR * TM_TQ1_0_GROUP);
    } else {
        tm_panels_by_rows(args, begin, end, TM_ROWS, narrow, wide);
    }
}

int tm_ternary_matmul_tq1_0_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    const size_t together = TM_FOUR * TM_TQ1_0_GROUP;
    if (args->M == 1 && args->K > TM_ROWS_LONG) {
        int8_t *to = tm_tq1_0_arranged(args);
        for (size_t k = 0; k + together <= args->K; k += together, to += together)
            arrange(to, args->a + k);
        arrange(to, args->a + args->K - together);
    }
    return args->M <= TM_TQ1_0_FEW ? tm_groups_run(args, TM_TQ1_0_GROUP, body, TM_RANK(avx512))
                                   : tm_panel_run(args, TM_TQ1_0_GROUP, DIGIT_SHIFT, body, TM_RANK(avx512));
}

TM_END
#endif
