/* ternary_matmul of tq2_0 with AVX2: for each 32 bytes of a group 4 ands, shifts and maddubs, which meet 32 activations
 * each.
 *
 * A maddubs adds at most 512 in magnitude, so the 8 of a group fit int16; then pmaddwd by 1 moves them to int32. */
#include "tq2_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../rows_avx2.h"

enum { MOST = 2 }; /* rows of activations: 8 sums and what is loaded are all that fit */

static inline float scale(const uint8_t *group) { return _cvtsh_ss(tm_tq2_0_stored(group)); }

static inline __m256i activations(const int8_t *a, int h, int g)
{
    return _mm256_loadu_si256((const __m256i *)(a + TM_TQ2_0_HALF * h + 32 * g));
}

static inline int32_t one(const uint8_t *group, const int8_t *x)
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i s_i16x16[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m256i w = _mm256_loadu_si256((const __m256i *)(group + 32 * h));
        s_i16x16[h] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w, 2 * g), m3);
            s_i16x16[h] = _mm256_add_epi16(s_i16x16[h], _mm256_maddubs_epi16(c, activations(x, h, g)));
        }
    }
    return tm_sum_of(_mm256_madd_epi16(_mm256_add_epi16(s_i16x16[0], s_i16x16[1]), ones));
}

/* `count` is a constant at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void group_by(
    const int count, const uint8_t *const *groups, const int8_t *a, size_t lda, int32_t (*acc)[TM_ROWS])
{
    const __m256i m3 = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i s_i16x16[MOST][TM_ROWS];
#pragma GCC unroll 2
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            s_i16x16[m][r] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256i w[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            w[r] = _mm256_loadu_si256((const __m256i *)(groups[r] + 32 * h));
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
#pragma GCC unroll 4
            for (int r = 0; r < TM_ROWS; r++) {
                const __m256i c = _mm256_and_si256(_mm256_srli_epi16(w[r], 2 * g), m3);
#pragma GCC unroll 2
                for (int m = 0; m < count; m++)
                    s_i16x16[m][r] = _mm256_add_epi16(
                        s_i16x16[m][r], _mm256_maddubs_epi16(c, activations(a + (size_t)m * lda, h, g)));
            }
    }
#pragma GCC unroll 2
    for (int m = 0; m < count; m++) {
        __m256i s_i32x8[TM_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < TM_ROWS; r++)
            s_i32x8[r] = _mm256_madd_epi16(s_i16x16[m][r], ones);
        _mm_storeu_si128((__m128i *)acc[m], tm_sums_of(s_i32x8));
    }
}

static void micro(const uint8_t *const *groups, const int8_t *a, size_t lda, int count, int32_t (*acc)[TM_ROWS])
{
    if (count == 1)
        group_by(1, groups, a, lda, acc);
    else
        group_by(2, groups, a, lda, acc);
}

static const tm_grouped FORM = {TM_TQ2_0_GROUP, TM_TQ2_0_BYTES, scale};

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_groups_one(args, begin, end, FORM, one);
    else
        tm_groups_rows(args, begin, end, FORM, MOST, micro);
}

int tm_ternary_matmul_tq2_0_avx2(void *args) { return tm_groups_run(args, TM_TQ2_0_GROUP, body, TM_RANK(avx2)); }

TM_END
#endif
