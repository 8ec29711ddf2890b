/* ternary_matmul of q2_0 with AVX2: as avx512.c, in vectors of half the width, through maddubs into int16 sums.
 *
 * A maddubs adds at most 768 in magnitude, since field 3 means a code of 3 here: so the 2 and 16 of a group fit int16;
 * then pmaddwd by 1 moves them to int32. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../rows_avx2.h"

enum { PANEL = 8 };

/* The codes of half a group in the order of its weights. */
static inline __m256i codes_of(const uint8_t *bytes)
{
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    const __m256i two = _mm256_or_si256(w, _mm256_slli_epi32(w, 12));
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi32(two, 6)), _mm256_set1_epi8(3));
}

static inline __m256i of_group(const uint8_t *group, const int8_t *x)
{
    const __m256i low = _mm256_maddubs_epi16(codes_of(group + TM_Q2_0_CODES), _mm256_loadu_si256((const __m256i *)x));
    const __m256i high =
        _mm256_maddubs_epi16(codes_of(group + TM_Q2_0_CODES + 8), _mm256_loadu_si256((const __m256i *)(x + 32)));
    return _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
}

/* (p0 + p1) + (p2 + p3) */
static inline double summed(__m256d p)
{
    const __m128d low = _mm256_castpd256_pd128(p), high = _mm256_extractf128_pd(p, 1);
    const __m128d pairs = _mm_add_pd(_mm_unpacklo_pd(low, high), _mm_unpackhi_pd(low, high));
    return _mm_cvtsd_f64(_mm_add_sd(pairs, _mm_unpackhi_pd(pairs, pairs)));
}

static inline __attribute__((always_inline)) double four(
    const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums)
{
    __m256i sums[TM_Q2_0_FOUR];
    uint64_t halves = 0;
    int32_t of_x[TM_Q2_0_FOUR] = {0};
#pragma GCC unroll 4
    for (size_t g = 0; g < TM_Q2_0_FOUR; g++) {
        const int there = g < count;
        sums[g] = there ? of_group(groups + g * TM_Q2_0_BYTES, x + g * TM_Q2_0_GROUP) : _mm256_setzero_si256();
        halves |= there ? (uint64_t)tm_q2_0_stored(groups + g * TM_Q2_0_BYTES) << (16 * g) : 0;
    }
    memcpy(of_x, act_sums, count * sizeof of_x[0]);
    const __m128i parts = _mm_sub_epi32(tm_sums_of(sums), _mm_loadu_si128((const __m128i *)of_x));
    const __m256d scales = _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)halves)));
    return summed(_mm256_mul_pd(scales, _mm256_cvtepi32_pd(parts)));
}

/* The codes of a group of each row of a panel: codes[d][s] has those of the weights 16 * d + s, + 4, + 8 and + 12. */
static inline __attribute__((always_inline)) void panel_codes(const uint8_t *const *groups, __m256i codes[4][4])
{
    const __m256i m3 = _mm256_set1_epi8(3);
    __m256i rows[4], w[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) /* the rows j and 4 + j */
        rows[j] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(groups[j] + TM_Q2_0_CODES))),
            _mm_loadu_si128((const __m128i *)(groups[4 + j] + TM_Q2_0_CODES)), 1);
    const __m256i a = _mm256_unpacklo_epi32(rows[0], rows[1]), b = _mm256_unpacklo_epi32(rows[2], rows[3]);
    const __m256i c = _mm256_unpackhi_epi32(rows[0], rows[1]), d = _mm256_unpackhi_epi32(rows[2], rows[3]);
    w[0] = _mm256_unpacklo_epi64(a, b);
    w[1] = _mm256_unpackhi_epi64(a, b);
    w[2] = _mm256_unpacklo_epi64(c, d);
    w[3] = _mm256_unpackhi_epi64(c, d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            codes[i][s] = _mm256_and_si256(_mm256_srli_epi16(w[i], 2 * s), m3);
}

static inline void panel_scales(const uint8_t *const *groups, __m256d scales[2])
{
    uint16_t halves[PANEL];
    for (int r = 0; r < PANEL; r++)
        halves[r] = tm_q2_0_stored(groups[r]);
    const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
    scales[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(wide));
    scales[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(wide, 1));
}

/* The sums of a group's products, one to a row of the panel. */
static inline __attribute__((always_inline)) __m256i panel_sums(const __m256i codes[4][4], const int8_t *x)
{
    const __m256i order = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    int32_t fours[16] __attribute__((aligned(32)));
    for (int h = 0; h < 2; h++)
        _mm256_store_si256(
            (__m256i *)(fours + 8 * h), _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(x + 32 * h)), order));
    __m256i even = _mm256_setzero_si256(), odd = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int d = 0; d < 4; d++)
#pragma GCC unroll 2
        for (int s = 0; s < 4; s += 2) {
            const __m256i x0 = _mm256_set1_epi32(fours[4 * d + s]), x1 = _mm256_set1_epi32(fours[4 * d + s + 1]);
            even = _mm256_add_epi16(even, _mm256_maddubs_epi16(codes[d][s], x0));
            odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(codes[d][s + 1], x1));
        }
    return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

/* A group's products come to the sums of a row of activations; `nth` of its four. */
static inline void add(tm_q2_0_sums *sums, size_t nth, __m256d low, __m256d high)
{
    const __m256d p[2] = {low, high};
    for (int h = 0; h < 2; h++) {
        double *first = sums->first + 4 * h, *second = sums->second + 4 * h, *total = sums->total + 4 * h;
        switch (nth) {
        case 0: _mm256_storeu_pd(first, p[h]); break;
        case 1: _mm256_storeu_pd(first, _mm256_add_pd(_mm256_loadu_pd(first), p[h])); break;
        case 2: _mm256_storeu_pd(second, p[h]); break;
        default:
            _mm256_storeu_pd(
                total, _mm256_add_pd(
                           _mm256_loadu_pd(total),
                           _mm256_add_pd(_mm256_loadu_pd(first), _mm256_add_pd(_mm256_loadu_pd(second), p[h]))));
        }
    }
}

/* Rows [n, n + count) of the weights with rows [first, last) of the activations. */
static void panel(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last)
{
    const size_t groups = args->K / TM_Q2_0_GROUP, row = groups * TM_Q2_0_BYTES;
    tm_q2_0_sums sums[TM_Q2_0_SUMS];
    for (size_t m = first; m < last; m++)
        memset(sums[m - first].total, 0, sizeof sums[0].total);
    const uint8_t *at[PANEL];
    for (size_t r = 0; r < PANEL; r++)
        at[r] = args->weights + (n + (r < count ? r : 0)) * row;
    for (size_t g = 0; g < groups; g++) {
        __m256i codes[4][4];
        __m256d scales[2];
        panel_codes(at, codes);
        panel_scales(at, scales);
        for (size_t m = first; m < last; m++) {
            const __m256i part = _mm256_sub_epi32(
                panel_sums(codes, args->a + m * args->lda + g * TM_Q2_0_GROUP),
                _mm256_set1_epi32(args->act_sums[m * groups + g]));
            add(&sums[m - first], g % TM_Q2_0_FOUR,
                _mm256_mul_pd(scales[0], _mm256_cvtepi32_pd(_mm256_castsi256_si128(part))),
                _mm256_mul_pd(scales[1], _mm256_cvtepi32_pd(_mm256_extracti128_si256(part, 1))));
        }
        for (size_t r = 0; r < PANEL; r++)
            at[r] += TM_Q2_0_BYTES;
    }
    for (size_t m = first; m < last; m++)
        for (size_t r = 0; r < count; r++)
            tm_group_store(args, m, n + r, tm_q2_0_total(&sums[m - first], r, groups));
}

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_q2_0_one(args, 0, begin, end, four);
    else
        tm_q2_0_panels(args, begin, end, PANEL, panel);
}

int tm_ternary_matmul_q2_0_avx2(void *args) { return tm_q2_0_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
