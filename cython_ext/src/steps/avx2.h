/* The steps with AVX2: 32 elements an iteration; comparisons give 0 or -1 in 32 bits, which are added up and packed to
 * bytes. */
#ifndef TM_STEPS_AVX2_H
#define TM_STEPS_AVX2_H

#include "steps.h"

typedef struct tm_steps_ymm {
    __m256i one, two, sign;
} tm_steps_ymm;

static inline __attribute__((always_inline)) __m256i
tm_steps_8(const float *x, tm_steps_ymm s, enum tm_low low, __m256i *largest_u32x8)
{
    __m256i up = _mm256_loadu_si256((const __m256i *)x), down = _mm256_xor_si256(up, s.sign);
    *largest_u32x8 = _mm256_max_epu32(*largest_u32x8, _mm256_add_epi32(up, up));
    __m256i q_i32x8 = _mm256_sub_epi32(_mm256_cmpgt_epi32(down, s.one), _mm256_cmpgt_epi32(up, s.one));
    return low == TM_LOW_2 ? _mm256_add_epi32(q_i32x8, _mm256_cmpgt_epi32(down, s.two)) : q_i32x8;
}

static inline __attribute__((always_inline)) __m256i
tm_steps_32(const float *x, tm_steps_ymm s, enum tm_low low, __m256i *largest_u32x8)
{
    __m256i a = _mm256_packs_epi32(tm_steps_8(x, s, low, largest_u32x8), tm_steps_8(x + 8, s, low, largest_u32x8));
    __m256i b =
        _mm256_packs_epi32(tm_steps_8(x + 16, s, low, largest_u32x8), tm_steps_8(x + 24, s, low, largest_u32x8));
    /* Packing works in each half separately and leaves groups of four out of order. */
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline uint32_t tm_largest_8(__m256i u32x8)
{
    __m128i u32x4 = _mm_max_epu32(_mm256_castsi256_si128(u32x8), _mm256_extracti128_si256(u32x8, 1));
    u32x4 = _mm_max_epu32(u32x4, _mm_shuffle_epi32(u32x4, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(u32x4, _mm_shuffle_epi32(u32x4, 0xb1)));
}

static inline __attribute__((always_inline)) uint32_t
tm_steps_avx2(const float *x, int8_t *q, size_t n, tm_steps steps, enum tm_low low, int stream)
{
    const tm_steps_ymm s = {
        _mm256_set1_epi32(steps.one), _mm256_set1_epi32(steps.two), _mm256_set1_epi32((int32_t)TM_SIGN)};
    __m256i largest_u32x8 = _mm256_setzero_si256();
    uint32_t ends = 0;
    size_t i = 0;
    if (stream) {
        i = tm_until_aligned(q, 1, 32, n);
        ends = tm_steps_plain(x, q, i, steps, low);
        for (; i + 32 <= n; i += 32)
            _mm256_stream_si256((__m256i *)(q + i), tm_steps_32(x + i, s, low, &largest_u32x8));
        _mm_sfence();
    }
    for (; i + 32 <= n; i += 32)
        _mm256_storeu_si256((__m256i *)(q + i), tm_steps_32(x + i, s, low, &largest_u32x8));
    uint32_t rest = tm_steps_plain(x + i, q + i, n - i, steps, low), inner = tm_largest_8(largest_u32x8);
    ends = ends > rest ? ends : rest;
    return ends > inner ? ends : inner;
}

#endif
