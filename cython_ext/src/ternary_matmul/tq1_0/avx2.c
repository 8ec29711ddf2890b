/* ternary_matmul of tq1_0 with AVX2: a group is 8 vectors of 32 bytes whose digit 0 is that of 32 weights side by side.
 *
 * Digit 0 of q is 0 up to 85, 1 up to 170, and 2 from there: with r = max(q - 1, 0), the top two bits of avg(r, avg(r,
 * 0)), where avg rounds up. A maddubs of digits adds at most 512 in magnitude, so the 8 of a group fit int16; then
 * pmaddwd by 1 moves them to int32. */
#include "tq1_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../rows_avx2.h"
#include "tail_avx2.h"

enum { VECTORS = 8 };

static inline float scale(const uint8_t *group) { return _cvtsh_ss(tm_tq1_0_stored(group)); }

static inline __m256i digit(__m256i q)
{
    const __m256i r = _mm256_subs_epu8(q, _mm256_set1_epi8(1));
    const __m256i top = _mm256_avg_epu8(r, _mm256_avg_epu8(r, _mm256_setzero_si256()));
    return _mm256_and_si256(_mm256_srli_epi16(top, 6), _mm256_set1_epi8(3));
}

/* The digits of a group, 32 weights side by side in each vector. */
static inline __attribute__((always_inline)) void digits_of(const uint8_t *group, __m256i digits[VECTORS])
{
    __m256i q = _mm256_loadu_si256((const __m256i *)group), last[3];
#pragma GCC unroll 5
    for (int n = 0; n < 5; n++) {
        digits[n] = digit(q);
        q = tm_thrice(q);
    }
    tm_tq1_0_last(group, last);
#pragma GCC unroll 3
    for (int n = 0; n < 3; n++)
        digits[5 + n] = digit(last[n]);
}

static inline __m256i products(const __m256i digits[VECTORS], const int8_t *x)
{
    __m256i s_i16x16 = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int n = 0; n < VECTORS; n++)
        s_i16x16 = _mm256_add_epi16(
            s_i16x16, _mm256_maddubs_epi16(digits[n], _mm256_loadu_si256((const __m256i *)(x + 32 * n))));
    return _mm256_madd_epi16(s_i16x16, _mm256_set1_epi16(1));
}

static inline int32_t one(const uint8_t *group, const int8_t *x)
{
    __m256i digits[VECTORS];
    digits_of(group, digits);
    return tm_sum_of(products(digits, x));
}

static void micro(const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    __m256i s_i32x8[TM_MATMUL_BLOCK][TM_ROWS];
    for (int r = 0; r < TM_ROWS; r++) {
        __m256i digits[VECTORS];
        digits_of(groups[r], digits);
        for (int m = 0; m < count; m++)
            s_i32x8[m][r] = products(digits, a + (size_t)m * lda);
    }
    for (int m = 0; m < count; m++)
        _mm_storeu_si128((__m128i *)acc[m], tm_sums_of(s_i32x8[m]));
}

static const tm_grouped FORM = {TM_TQ1_0_GROUP, TM_TQ1_0_BYTES, scale};

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_groups_one(args, begin, end, FORM, one);
    else
        tm_groups_rows(args, begin, end, FORM, TM_MATMUL_BLOCK, micro);
}

int tm_ternary_matmul_tq1_0_avx2(void *args) { return tm_groups_run(args, TM_TQ1_0_GROUP, body, TM_RANK(avx2)); }

TM_END
#endif
