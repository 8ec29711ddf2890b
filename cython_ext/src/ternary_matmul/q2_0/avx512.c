/* ternary_matmul of q2_0 with AVX-512 VNNI, on activations in the order of the shifted codes (q2_0.h).
 *
 * One row of activations: four groups, 72 bytes. A permutation of words collects their codes in one vector, a quarter
 * for each group; another collects their scales. Three shifts, four ands, four vpdpbusd; each quarter's sum meets its
 * scale in float64. Four such vectors are added up together: of four rows of weights, or of 16 groups of one row if
 * rows are long.
 *
 * Up to TM_FEW rows of activations share what is decoded of four rows of weights; more use panels_avx512.h, in which
 * each dword of a group's 16 bytes is in its row's lane, and its four shifts meet four activations each.
 *
 * Limit: the decoding of each group of 64 weights.
 *
 * Rates: `python suites/performance/gemv.py --format q2_0 --no-peers --shapes 2560x2560 --threads 1`. Versions and what
 * lost: docs/kernels/q2_0.md. */
#include "q2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx512)
#include "../panels_avx512.h"
#include "../rows_avx512.h"

enum { TM_Q2_0_FEW = TM_FEW };
#include "arrange_avx2.h"

/* The codes of four groups, 64 bytes: `low` holds the first 64 of the groups' bytes, `high` the others. */
static inline __m512i codes_of(__m512i low, __m512i high)
{
    /* Words of the 36: in each group 1 of the scale, then 8 of codes. */
    const __m512i codes = _mm512_set_epi64(
        0x0023002200210020, 0x001f001e001d001c, 0x001a001900180017, 0x0016001500140013, 0x00110010000f000e,
        0x000d000c000b000a, 0x0008000700060005, 0x0004000300020001);
    return _mm512_permutex2var_epi16(low, codes, high);
}

/* The products of four groups; each quarter of the vector adds up to its group's sum. */
static inline __attribute__((always_inline)) __m512i quarters(__m512i w, const int8_t *x)
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i s_i32x16 = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++)
        s_i32x16 = tm_dot_64(
            s_i32x16, _mm512_and_si512(_mm512_srli_epi16(w, (unsigned)(2 * s)), m3), _mm512_loadu_si512(x + 64 * s));
    return s_i32x16;
}

static inline __attribute__((always_inline)) double four(
    const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums)
{
    const __m512i scales = _mm512_zextsi128_si512(_mm_cvtsi64_si128(0x001b001200090000));
    const size_t words = 9 * count;
    const __m512i low =
        count == 4 ? _mm512_loadu_si512(groups) : _mm512_maskz_loadu_epi16((__mmask32)((1u << words) - 1), groups);
    const __m512i high =
        count == 4 ? _mm512_zextsi128_si512(_mm_loadl_epi64((const __m128i *)(groups + 64))) : _mm512_setzero_si512();
    const __m128i sums = tm_sums_of_quarters(quarters(codes_of(low, high), x));
    const __m128i of_x = count == 4 ? _mm_loadu_si128((const __m128i *)act_sums)
                                    : _mm_maskz_loadu_epi32((__mmask8)((1u << count) - 1), act_sums);
    const __m128i halves = _mm512_castsi512_si128(_mm512_permutexvar_epi16(scales, low));
    return tm_q2_0_summed(
        _mm256_mul_pd(_mm256_cvtps_pd(_mm_cvtph_ps(halves)), _mm256_cvtepi32_pd(_mm_sub_epi32(sums, of_x))));
}

/* The scales of the four groups of which low[i] holds the first 64 bytes, as float64: group j in lane 4 * j + i. */
typedef struct tm_scales {
    __m512d low, high;
} tm_scales;

static inline __attribute__((always_inline)) tm_scales scales_of(const __m512i low[4])
{
    /* Words 0, 9, 18 and 27 of one vector at 4 * j, those of the other at 4 * j + 1. */
    const __m512i words =
        _mm512_zextsi256_si512(_mm256_setr_epi16(0, 32, 0, 32, 9, 41, 9, 41, 18, 50, 18, 50, 27, 59, 27, 59));
    const __m256i halves = _mm256_blend_epi32(
        _mm512_castsi512_si256(_mm512_permutex2var_epi16(low[0], words, low[1])),
        _mm512_castsi512_si256(_mm512_permutex2var_epi16(low[2], words, low[3])), 0xaa);
    const __m512 wide = _mm512_cvtph_ps(halves);
    return (tm_scales){_mm512_cvtps_pd(_mm512_castps512_ps256(wide)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(wide, 1))};
}

/* Lane i: the sum, by pairs, of the products of lanes i, 4 + i, 8 + i and 12 + i and their scales. */
static inline __attribute__((always_inline)) __m256d products(tm_scales scales, __m512i sums)
{
    const __m512d p01 = _mm512_mul_pd(scales.low, _mm512_cvtepi32_pd(_mm512_castsi512_si256(sums)));
    const __m512d p23 = _mm512_mul_pd(scales.high, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sums, 1)));
    return _mm256_add_pd(
        _mm256_add_pd(_mm512_castpd512_pd256(p01), _mm512_extractf64x4_pd(p01, 1)),
        _mm256_add_pd(_mm512_castpd512_pd256(p23), _mm512_extractf64x4_pd(p23, 1)));
}

/* Four fours at a time: group j of four i is lane 4 * j + i of the sums, so fours are added as whole vectors. */
static inline __attribute__((always_inline)) void sixteen(
    const uint8_t *groups, const int8_t *x, const int32_t *act_sums, double fours[TM_Q2_0_FOUR])
{
    const __m512i across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low[4], v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8_t *const at = groups + (size_t)i * TM_Q2_0_FOUR * TM_Q2_0_BYTES;
        low[i] = tm_loaded(at);
        v[i] = quarters(
            codes_of(low[i], _mm512_zextsi128_si512(_mm_loadl_epi64((const __m128i *)(at + 64)))),
            x + TM_Q2_0_BLOCK * i);
    }
    const __m512i sums =
        _mm512_sub_epi32(tm_quarter_sums_of(v), _mm512_permutexvar_epi32(across, _mm512_loadu_si512(act_sums)));
    _mm256_storeu_pd(fours, products(scales_of(low), sums));
}

/* Four groups of each of four rows of weights at a time. They share loads of activations, and `rows` rows of
 * activations share the decoded codes. Group j of row r is lane 4 * j + r. */
static inline __attribute__((always_inline)) void four_rows(
    const enum tm_prefetch_level level, size_t ahead, const int rows, const tm_ternary_matmul_args *args, size_t begin,
    size_t end)
{
    const __m512i m3 = _mm512_set1_epi8(3);
    const __m512i across = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    enum { STEP = TM_Q2_0_FOUR * TM_Q2_0_BYTES };
    const size_t groups = args->K / TM_Q2_0_GROUP, row = groups * TM_Q2_0_BYTES;
    const size_t stop = TM_Q2_0_UNIT * end < args->N ? TM_Q2_0_UNIT * end : args->N;
    for (size_t n = TM_Q2_0_UNIT * begin; n < stop; n += TM_ROWS) {
        const size_t count = stop - n < TM_ROWS ? stop - n : TM_ROWS;
        const uint8_t *at[TM_ROWS];
        tm_rows_begin(args, n, count, row, TM_ROWS, at);
        const uint8_t *fetched = at[TM_ROWS - 1];
        __m256d sum[TM_FEW];
#pragma GCC unroll 4
        for (int m = 0; m < rows; m++)
            sum[m] = _mm256_setzero_pd();
        size_t g = 0;
        for (; g + TM_Q2_0_FOUR <= groups; g += TM_Q2_0_FOUR) {
            const int8_t *const x = args->a + g * TM_Q2_0_GROUP;
            __m512i low[TM_ROWS], w[TM_ROWS], s_i32x16[TM_FEW][TM_ROWS];
            tm_prefetch_lines(fetched, TM_ROWS * STEP / TM_PREFETCH_LINE * TM_PREFETCH_LINE, level, ahead);
            fetched += TM_ROWS * STEP;
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++) {
                low[r] = tm_loaded(at[r]);
                w[r] = codes_of(low[r], _mm512_zextsi128_si512(_mm_loadl_epi64((const __m128i *)(at[r] + 64))));
#pragma GCC unroll 4
                for (int m = 0; m < rows; m++)
                    s_i32x16[m][r] = _mm512_setzero_si512();
                at[r] += STEP;
            }
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                __m512i c[TM_ROWS];
#pragma GCC unroll 4
                for (int r = 0; r < TM_ROWS; r++)
                    c[r] = _mm512_and_si512(_mm512_srli_epi16(w[r], (unsigned)(2 * s)), m3);
#pragma GCC unroll 4
                for (int m = 0; m < rows; m++) {
                    __m512i a = _mm512_loadu_si512(x + (size_t)m * args->lda + 64 * s);
                    __asm__("" : "+v"(a)); /* else compilers load it for each row */
#pragma GCC unroll 4
                    for (int r = 0; r < TM_ROWS; r++)
                        s_i32x16[m][r] = tm_dot_64(s_i32x16[m][r], c[r], a);
                }
            }
            const tm_scales scales = scales_of(low);
#pragma GCC unroll 4
            for (int m = 0; m < rows; m++) {
                const int32_t *of_x = args->act_sums + (size_t)m * groups + g;
                const __m512i less =
                    _mm512_permutexvar_epi32(across, _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)of_x)));
                const __m512i sums = _mm512_sub_epi32(tm_quarter_sums_of(s_i32x16[m]), less);
                sum[m] = _mm256_add_pd(sum[m], products(scales, sums));
            }
        }
#pragma GCC unroll 4
        for (int m = 0; m < rows; m++) {
            double of[TM_ROWS];
            _mm256_storeu_pd(of, sum[m]);
            for (size_t r = 0; r < count; r++) {
                if (g < groups)
                    of[r] += four(
                        at[r], groups - g, args->a + (size_t)m * args->lda + g * TM_Q2_0_GROUP,
                        args->act_sums + (size_t)m * groups + g);
                tm_group_store(args, (size_t)m, n + r, of[r]);
            }
        }
    }
}

/* Like tm_groups_rows_few. */
static inline __attribute__((always_inline)) void few(const tm_ternary_matmul_args *args, size_t begin, size_t end)
{
    const tm_prefetch fetch = tm_rows_prefetch(args->K);
    switch (args->M) {
    case 1: TM_PREFETCHED(fetch, four_rows(level, ahead, 1, args, begin, end)); break;
    case 2: four_rows(fetch.level, fetch.bytes, 2, args, begin, end); break;
    case 3: four_rows(fetch.level, fetch.bytes, 3, args, begin, end); break;
    default: four_rows(fetch.level, fetch.bytes, 4, args, begin, end); break;
    }
}

static inline __attribute__((always_inline)) void prepare(const uint8_t *const *groups, __m512i *room)
{
    tm_panel_dwords(groups, TM_Q2_0_CODES, room);
}

/* Dword d shifted by 2 * s meets the four activations from 16 * s + 4 * d, in the order of q2_0.h. */
static inline __attribute__((always_inline)) size_t where(int part, int i)
{
    return (size_t)(16 * (i % 4) + 4 * (2 * part + i / 4));
}

static const tm_paneled PANELS = {
    prepare, tm_panel_two_bits, where, TM_Q2_0_GROUP, TM_Q2_0_BYTES, 0, 2, TM_Q2_0_FOUR, 2, 0};

void tm_q2_0_decoded_avx512(const uint8_t *const *groups, int8_t *to) { tm_panel_decoded(PANELS, groups, to); }

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
    const tm_ternary_matmul_args moved = tm_q2_0_moved(given);
    if (moved.M > 1 ? moved.M <= TM_FEW : moved.K <= TM_ROWS_LONG)
        few(&moved, begin, end);
    else if (moved.M == 1)
        tm_q2_0_one(&moved, 0, moved.a, begin, end, four, sixteen);
    else
        tm_panels_by_rows(&moved, begin, end, TM_Q2_0_UNIT, narrow, wide);
}

int tm_ternary_matmul_q2_0_avx512(void *given)
{
    tm_ternary_matmul_args *args = given;
    tm_q2_0_arrange(args);
    if (args->M <= TM_FEW)
        return tm_q2_0_run(args, body, TM_RANK(avx512));
    const tm_ternary_matmul_args moved = tm_q2_0_moved(args);
    tm_panel_begin(&moved, TM_Q2_0_GROUP, 0, tm_panel_starts);
    return tm_matmul_run_by(args, TM_Q2_0_UNIT, body, TM_RANK(avx512));
}

TM_END
#endif
