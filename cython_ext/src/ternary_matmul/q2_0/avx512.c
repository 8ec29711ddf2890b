/* ternary_matmul of q2_0 with AVX-512 VNNI.
 *
 * One row of activations: a group is one vector. Its 16 bytes go into 16 lanes, and w | w << 6 | w << 12 | w << 18 has
 * the four codes of a byte in the four bytes of its lane, in the order of the activations. The sums of four groups come
 * down to the lanes of one vector, which meets their scales in float64.
 *
 * Several rows: a panel of 16 rows of weights, one to a lane, so that no sum crosses lanes. Of a group's 16 bytes each
 * dword, transposed, is in its row's lane; shifted and masked it has the codes of weights 4 apart, and the activations,
 * shuffled the same way, meet them four at a time from memory. The codes of a group, 16 vectors, stay in registers for
 * all rows of activations. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(avx512)
#include "../rows_avx512.h"

enum { PANEL = 16 };

/* The codes of a group in the order of its weights. */
static inline __m512i codes_of(const uint8_t *bytes)
{
    const __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
    const __m512i two = _mm512_or_si512(w, _mm512_slli_epi32(w, 12));
    /* (two | two << 6) & mask */
    return _mm512_ternarylogic_epi32(two, _mm512_slli_epi32(two, 6), _mm512_set1_epi32(0x03030303), 0xa8);
}

static inline __m512i of_group(const uint8_t *group, const int8_t *x)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes_of(group + TM_Q2_0_CODES), _mm512_loadu_si512(x));
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
    __m512i sums[TM_Q2_0_FOUR];
    uint64_t halves = 0;
#pragma GCC unroll 4
    for (size_t g = 0; g < TM_Q2_0_FOUR; g++) {
        const int there = g < count;
        sums[g] = there ? of_group(groups + g * TM_Q2_0_BYTES, x + g * TM_Q2_0_GROUP) : _mm512_setzero_si512();
        halves |= there ? (uint64_t)tm_q2_0_stored(groups + g * TM_Q2_0_BYTES) << (16 * g) : 0;
    }
    const __mmask8 there = (__mmask8)((1u << count) - 1);
    const __m128i parts = _mm_sub_epi32(tm_wide_sums_of(sums), _mm_maskz_loadu_epi32(there, act_sums));
    const __m256d scales = _mm256_cvtps_pd(_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)halves)));
    return summed(_mm256_mul_pd(scales, _mm256_cvtepi32_pd(parts)));
}

/* The codes of a group of each row of a panel: codes[d][s] has those of the weights 16 * d + s, + 4, + 8 and + 12. */
static inline __attribute__((always_inline)) void panel_codes(const uint8_t *const *groups, __m512i codes[4][4])
{
    const __m512i m3 = _mm512_set1_epi8(3);
    __m512i rows[4], w[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* the rows j, 4 + j, 8 + j and 12 + j */
        rows[j] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(groups[j] + TM_Q2_0_CODES)));
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(groups[4 + j] + TM_Q2_0_CODES)), 1);
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(groups[8 + j] + TM_Q2_0_CODES)), 2);
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(groups[12 + j] + TM_Q2_0_CODES)), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]), b = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const __m512i c = _mm512_unpackhi_epi32(rows[0], rows[1]), d = _mm512_unpackhi_epi32(rows[2], rows[3]);
    w[0] = _mm512_unpacklo_epi64(a, b);
    w[1] = _mm512_unpackhi_epi64(a, b);
    w[2] = _mm512_unpacklo_epi64(c, d);
    w[3] = _mm512_unpackhi_epi64(c, d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            codes[i][s] = _mm512_and_si512(_mm512_srli_epi16(w[i], (unsigned)(2 * s)), m3);
}

static inline void panel_scales(const uint8_t *const *groups, __m512d scales[2])
{
    uint16_t halves[PANEL];
    for (int r = 0; r < PANEL; r++)
        halves[r] = tm_q2_0_stored(groups[r]);
    const __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
    scales[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(wide));
    scales[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(wide, 1));
}

/* The sums of a group's products, one to a row of the panel. */
static inline __attribute__((always_inline)) __m512i panel_sums(const __m512i codes[4][4], const int8_t *x)
{
    const __m512i order = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
    int32_t fours[16] __attribute__((aligned(64)));
    _mm512_store_si512(fours, _mm512_shuffle_epi8(_mm512_loadu_si512(x), order));
    __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int d = 0; d < 4; d++)
#pragma GCC unroll 2
        for (int s = 0; s < 4; s += 2) {
            even = _mm512_dpbusd_epi32(even, codes[d][s], _mm512_set1_epi32(fours[4 * d + s]));
            odd = _mm512_dpbusd_epi32(odd, codes[d][s + 1], _mm512_set1_epi32(fours[4 * d + s + 1]));
        }
    return _mm512_add_epi32(even, odd);
}

/* A group's products come to the sums of a row of activations; `nth` of its four. */
static inline void add(tm_q2_0_sums *sums, size_t nth, __m512d low, __m512d high)
{
    const __m512d p[2] = {low, high};
    for (int h = 0; h < 2; h++) {
        double *first = sums->first + 8 * h, *second = sums->second + 8 * h, *total = sums->total + 8 * h;
        switch (nth) {
        case 0: _mm512_storeu_pd(first, p[h]); break;
        case 1: _mm512_storeu_pd(first, _mm512_add_pd(_mm512_loadu_pd(first), p[h])); break;
        case 2: _mm512_storeu_pd(second, p[h]); break;
        default:
            _mm512_storeu_pd(
                total, _mm512_add_pd(
                           _mm512_loadu_pd(total),
                           _mm512_add_pd(_mm512_loadu_pd(first), _mm512_add_pd(_mm512_loadu_pd(second), p[h]))));
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
        __m512i codes[4][4];
        __m512d scales[2];
        panel_codes(at, codes);
        panel_scales(at, scales);
        for (size_t m = first; m < last; m++) {
            const __m512i part = _mm512_sub_epi32(
                panel_sums(codes, args->a + m * args->lda + g * TM_Q2_0_GROUP),
                _mm512_set1_epi32(args->act_sums[m * groups + g]));
            add(&sums[m - first], g % TM_Q2_0_FOUR,
                _mm512_mul_pd(scales[0], _mm512_cvtepi32_pd(_mm512_castsi512_si256(part))),
                _mm512_mul_pd(scales[1], _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(part, 1))));
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

int tm_ternary_matmul_q2_0_avx512(void *args) { return tm_q2_0_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
