/* The steps with SSE4.1: 16 elements an iteration, like avx2.h. */
#ifndef TM_STEPS_SSE41_H
#define TM_STEPS_SSE41_H

#include "steps.h"

typedef struct tm_steps_xmm {
    __m128i one, two, sign;
} tm_steps_xmm;

static inline __attribute__((always_inline)) __m128i
tm_steps_4(const float *x, tm_steps_xmm s, enum tm_low low, __m128i *largest_u32x4)
{
    __m128i up = _mm_loadu_si128((const __m128i *)x), down = _mm_xor_si128(up, s.sign);
    *largest_u32x4 = _mm_max_epu32(*largest_u32x4, _mm_add_epi32(up, up));
    __m128i q_i32x4 = _mm_sub_epi32(_mm_cmpgt_epi32(down, s.one), _mm_cmpgt_epi32(up, s.one));
    return low == TM_LOW_2 ? _mm_add_epi32(q_i32x4, _mm_cmpgt_epi32(down, s.two)) : q_i32x4;
}

static inline __attribute__((always_inline)) __m128i
tm_steps_16(const float *x, tm_steps_xmm s, enum tm_low low, __m128i *largest_u32x4)
{
    __m128i a = _mm_packs_epi32(tm_steps_4(x, s, low, largest_u32x4), tm_steps_4(x + 4, s, low, largest_u32x4));
    __m128i b = _mm_packs_epi32(tm_steps_4(x + 8, s, low, largest_u32x4), tm_steps_4(x + 12, s, low, largest_u32x4));
    return _mm_packs_epi16(a, b);
}

static inline uint32_t tm_largest_4(__m128i u32x4)
{
    u32x4 = _mm_max_epu32(u32x4, _mm_shuffle_epi32(u32x4, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(u32x4, _mm_shuffle_epi32(u32x4, 0xb1)));
}

static inline __attribute__((always_inline)) uint32_t
tm_steps_sse41(const float *x, int8_t *q, size_t n, tm_steps steps, enum tm_low low, int stream)
{
    const tm_steps_xmm s = {_mm_set1_epi32(steps.one), _mm_set1_epi32(steps.two), _mm_set1_epi32((int32_t)TM_SIGN)};
    __m128i largest_u32x4 = _mm_setzero_si128();
    uint32_t ends = 0;
    size_t i = 0;
    if (stream) {
        i = tm_until_aligned(q, 1, 16, n);
        ends = tm_steps_plain(x, q, i, steps, low);
        for (; i + 16 <= n; i += 16)
            _mm_stream_si128((__m128i *)(q + i), tm_steps_16(x + i, s, low, &largest_u32x4));
        _mm_sfence();
    }
    for (; i + 16 <= n; i += 16)
        _mm_storeu_si128((__m128i *)(q + i), tm_steps_16(x + i, s, low, &largest_u32x4));
    uint32_t rest = tm_steps_plain(x + i, q + i, n - i, steps, low), inner = tm_largest_4(largest_u32x4);
    ends = ends > rest ? ends : rest;
    return ends > inner ? ends : inner;
}

#endif
