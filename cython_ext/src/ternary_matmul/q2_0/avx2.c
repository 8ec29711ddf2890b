/* ternary_matmul of q2_0 with AVX2: as avx512.c, in vectors of half the width, two groups to a vector or a panel of 8
 * rows, through maddubs into int16 sums.
 *
 * A maddubs adds at most 768 in magnitude, since field 3 means a code of 3 here: so the 2 and 16 of a group fit int16;
 * then pmaddwd by 1 moves them to int32. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../rows_avx2.h"
#include "arrange_avx2.h"

enum { PANEL = 8 };

/* The codes of two groups, or of one beside itself. */
static inline __m256i two(const uint8_t *groups, int both)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(groups + TM_Q2_0_CODES))),
        _mm_loadu_si128((const __m128i *)(groups + both * TM_Q2_0_BYTES + TM_Q2_0_CODES)), 1);
}

/* Each half has what a group adds up to, in four parts. */
static inline __attribute__((always_inline)) __m256i of_two(__m256i w, const int8_t *x)
{
    __m256i s_i16x16 = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++) {
        const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w, 2 * s), _mm256_set1_epi8(3));
        const __m256i a_i8x32 = _mm256_loadu_si256((const __m256i *)(x + 64 * s));
        s_i16x16 = _mm256_add_epi16(s_i16x16, _mm256_maddubs_epi16(c, a_i8x32));
    }
    return _mm256_madd_epi16(s_i16x16, _mm256_set1_epi16(1));
}

static inline __attribute__((always_inline)) double four(
    const uint8_t *groups, size_t count, const int8_t *x, const int32_t *act_sums)
{
    uint64_t halves = 0;
    int32_t of_x[TM_Q2_0_FOUR] = {0};
#pragma GCC unroll 4
    for (size_t g = 0; g < TM_Q2_0_FOUR; g++)
        halves |= g < count ? (uint64_t)tm_q2_0_stored(groups + g * TM_Q2_0_BYTES) << (16 * g) : 0;
    memcpy(of_x, act_sums, count * sizeof of_x[0]);
    /* What is read twice at the end of a row meets activations of 0. */
    const __m256i low = of_two(two(groups, count > 1), x);
    const __m256i high =
        count > 2 ? of_two(two(groups + 2 * TM_Q2_0_BYTES, count > 3), x + 32) : _mm256_setzero_si256();
    const __m256i pairs = _mm256_hadd_epi32(low, high), halved = _mm256_hadd_epi32(pairs, pairs);
    const __m128i sums = _mm_unpacklo_epi32(_mm256_castsi256_si128(halved), _mm256_extracti128_si256(halved, 1));
    const __m128i parts = _mm_sub_epi32(sums, _mm_loadu_si128((const __m128i *)of_x));
    const __m256d scales = _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)halves)));
    return tm_q2_0_summed(_mm256_mul_pd(scales, _mm256_cvtepi32_pd(parts)));
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

/* The sums of a group's products, one to a row of the panel; `x` is where the group begins among the 64 of a shift. */
static inline __attribute__((always_inline)) __m256i panel_sums(const __m256i codes[4][4], const int8_t *x)
{
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 4
    for (int d = 0; d < 4; d++)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) {
            int32_t four;
            memcpy(&four, x + 64 * s + 4 * d, sizeof four);
            const __m256i products = _mm256_maddubs_epi16(codes[d][s], _mm256_set1_epi32(four));
            sums[s % 2] = _mm256_add_epi16(sums[s % 2], products);
        }
    return _mm256_madd_epi16(_mm256_add_epi16(sums[0], sums[1]), _mm256_set1_epi16(1));
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
        const size_t block = g / TM_Q2_0_FOUR * TM_Q2_0_BLOCK + g % TM_Q2_0_FOUR * (TM_Q2_0_GROUP / 4);
        panel_codes(at, codes);
        panel_scales(at, scales);
        for (size_t m = first; m < last; m++) {
            const __m256i part = _mm256_sub_epi32(
                panel_sums(codes, tm_q2_0_arranged(args, m) + block),
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
        tm_q2_0_one(args, 0, tm_q2_0_arranged(args, 0), begin, end, four, NULL);
    else
        tm_q2_0_panels(args, begin, end, PANEL, panel);
}

int tm_ternary_matmul_q2_0_avx2(void *args)
{
    tm_q2_0_arrange(args);
    return tm_q2_0_run(args, body, TM_RANK(avx2));
}

TM_END
#endif
