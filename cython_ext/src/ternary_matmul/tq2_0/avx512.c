/* ternary_matmul of tq2_0 with AVX-512 VNNI.
 *
 * One row of activations is reordered once, so that 64 of its values lie side by side as the codes do. Then a group at
 * a time of four rows of weights, each one 64-byte vector of codes. The four vectors of sums are added up together and
 * meet the groups' scales in float64, a row to a lane. They share each load of activations (four_rows.h). Rows of
 * weights longer than TM_ROWS_LONG: four groups of one row at a time (fours.h).
 *
 * Up to TM_FEW rows of activations run in the same way, more by panels of rows of weights (panels_avx512.h): the shifts
 * of four bytes of each row meet four activations side by side.
 *
 * Limit: one row, one load of activations for four rows of weights, and a shift, an and and a vpdpbusd for each 64
 * codes.
 *
 * Rates: `python suites/performance/gemv.py --format tq2_0 --no-peers --shapes 2560x2560 --threads 1`. Versions and
 * what lost: docs/kernels/tq2_0.md. */
#include "tq2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../four_rows.h"
#include "../panels_avx512.h"
#include "../rows_avx512.h"

static inline float scale(const uint8_t *group) { return _cvtsh_ss(tm_tq2_0_stored(group)); }

static inline int32_t one(const uint8_t *group, const int8_t *x)
{
    const __m256i m3 = _mm256_set1_epi8(3);
    tm_dots s[2] = {{0}, {0}};
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m256i w = _mm256_loadu_si256((const __m256i *)(group + 32 * h));
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w, 2 * g), m3);
            s[h] = tm_dots_added(s[h], c, _mm256_loadu_si256((const __m256i *)(x + TM_TQ2_0_HALF * h + 32 * g)));
        }
    }
    return tm_sum_of(tm_dots_sum(s[0] + s[1]));
}

/* The sums of a group, lane by lane. */
static inline __m512i lanes(const uint8_t *group, const int8_t *arranged)
{
    const __m512i m3 = _mm512_set1_epi8(3), w = tm_loaded(group);
    __m512i s_i32x16 = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        s_i32x16 = tm_dot_64(
            s_i32x16, _mm512_and_si512(_mm512_srli_epi16(w, (unsigned)(2 * g)), m3),
            _mm512_loadu_si512(arranged + 64 * g));
    return s_i32x16;
}

static inline __attribute__((always_inline)) __m128i four(const uint8_t *groups, const int8_t *arranged)
{
    __m512i s_i32x16[TM_FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < TM_FOUR; i++)
        s_i32x16[i] = lanes(groups + i * TM_TQ2_0_BYTES, arranged + i * TM_TQ2_0_GROUP);
    return tm_wide_sums_of(s_i32x16);
}

/* The sums of a group of four rows. */
static inline __attribute__((always_inline)) void four_rows(
    const int count, const uint8_t *const *groups, const int8_t *arranged, size_t lda, __m128i *sums)
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i w[TM_ROWS], s_i32x16[TM_FEW][TM_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < TM_ROWS; r++) {
        w[r] = tm_loaded(groups[r]);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++)
            s_i32x16[m][r] = _mm512_setzero_si512();
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512i c[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            c[r] = _mm512_and_si512(_mm512_srli_epi16(w[r], (unsigned)(2 * g)), m3);
#pragma GCC unroll 4
        for (int m = 0; m < count; m++) {
            __m512i a = _mm512_loadu_si512(arranged + (size_t)m * lda + 64 * g);
            __asm__("" : "+v"(a)); /* else compilers load it for each row */
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++)
                s_i32x16[m][r] = tm_dot_64(s_i32x16[m][r], c[r], a);
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
        sums[m] = tm_wide_sums_of(s_i32x16[m]);
}

static inline __attribute__((always_inline)) void prepare(const uint8_t *const *groups, __m512i *room)
{
#pragma GCC unroll 1
    for (int q = 0; q < 4; q++)
        tm_panel_dwords(groups, 16 * (size_t)q, room + 4 * q);
}

/* Bytes 16 * q to 16 * q + 15 of a group's 64 hold the weights from 128 * (q / 2) + 16 * (q % 2), and those 32, 64 and
 * 96 further. */
static inline __attribute__((always_inline)) size_t where(int part, int i)
{
    const int dword = 2 * part + i / 4, q = dword / 4;
    return (size_t)(TM_TQ2_0_HALF * (q / 2) + 16 * (q % 2) + 32 * (i % 4) + 4 * (dword % 4));
}

static const tm_grouped FORM = {TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, scale};

static const tm_paneled PANELS = {
    prepare, tm_panel_two_bits, where, TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, TM_TQ2_0_SCALE, 8, 1, 2, 0};

void tm_tq2_0_decoded_avx512(const uint8_t *const *groups, int8_t *to) { tm_panel_decoded(PANELS, groups, to); }

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
    if (args->M > 1 ? args->M <= TM_FEW : args->K <= TM_ROWS_LONG)
        tm_groups_rows_few(TM_FEW, args, begin, end, FORM, TM_TQ2_0_SCALE, tm_tq2_0_arranged(args), args->K, four_rows);
    else if (args->M == 1)
        tm_groups_fours(args, begin, end, FORM, TM_TQ2_0_SCALE, one, four, tm_tq2_0_arranged(args), NULL);
    else
        tm_panels_by_rows(args, begin, end, TM_ROWS, narrow, wide);
}

int tm_ternary_matmul_tq2_0_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    if (args->M > TM_FEW)
        return tm_panel_run(args, TM_TQ2_0_GROUP, 0, body, TM_RANK(avx512));
    int8_t *to = tm_tq2_0_arranged(args);
    for (size_t m = 0; m < args->M; m++)
        for (size_t k = 0; k < args->K; k += TM_TQ2_0_GROUP)
            for (size_t g = 0; g < 4; g++, to += 64) {
                const int8_t *a = args->a + m * args->lda + k + 32 * g;
                memcpy(to, a, 32);
                memcpy(to + 32, a + TM_TQ2_0_HALF, 32);
            }
    return tm_groups_run(args, TM_TQ2_0_GROUP, body, TM_RANK(avx512));
}

TM_END
#endif
