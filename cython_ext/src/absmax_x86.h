/* absmax.h with the instruction sets of x86. */
#ifndef TM_ABSMAX_X86_H
#define TM_ABSMAX_X86_H

#include "absmax.h"
#include "few.h"

TM_BEGIN(sse41)

static inline uint32_t tm_highest_sse41(__m128i a_u32x4)
{
    a_u32x4 = _mm_max_epu32(a_u32x4, _mm_shuffle_epi32(a_u32x4, 0x4e));
    a_u32x4 = _mm_max_epu32(a_u32x4, _mm_shuffle_epi32(a_u32x4, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(a_u32x4);
}

static inline __m128i tm_doubled_larger_sse41(__m128i largest_u32x4, __m128i x_u32x4)
{
    return _mm_max_epu32(largest_u32x4, _mm_add_epi32(x_u32x4, x_u32x4));
}

static inline __m128i tm_larger_sse41(__m128i largest_u32x4, const float *x)
{
    return tm_doubled_larger_sse41(largest_u32x4, _mm_loadu_si128((const __m128i *)x));
}

static inline uint32_t tm_absmax_sse41(const float *x, size_t n)
{
    __m128i a_u32x4 = _mm_setzero_si128(), b_u32x4 = a_u32x4;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        tm_prefetch_ahead(x + i);
        a_u32x4 = tm_larger_sse41(tm_larger_sse41(a_u32x4, x + i), x + i + 4);
        b_u32x4 = tm_larger_sse41(tm_larger_sse41(b_u32x4, x + i + 8), x + i + 12);
    }
    for (; i + 4 <= n; i += 4)
        a_u32x4 = tm_larger_sse41(a_u32x4, x + i);
    if (i < n)
        a_u32x4 = tm_doubled_larger_sse41(a_u32x4, tm_first3_sse41(x + i, n - i));
    return tm_highest_sse41(_mm_max_epu32(a_u32x4, b_u32x4));
}

TM_END
TM_BEGIN(avx2)

static inline __m256i tm_doubled_larger_avx2(__m256i largest_u32x8, __m256i x_u32x8)
{
    return _mm256_max_epu32(largest_u32x8, _mm256_add_epi32(x_u32x8, x_u32x8));
}

static inline __m256i tm_larger_avx2(__m256i largest_u32x8, const float *x)
{
    return tm_doubled_larger_avx2(largest_u32x8, _mm256_loadu_si256((const __m256i *)x));
}

static inline uint32_t tm_absmax_avx2(const float *x, size_t n)
{
    __m256i a_u32x8 = _mm256_setzero_si256(), b_u32x8 = a_u32x8, c_u32x8 = a_u32x8, d_u32x8 = a_u32x8;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        tm_prefetch_ahead(x + i);
        tm_prefetch_ahead(x + i + 16);
        a_u32x8 = tm_larger_avx2(a_u32x8, x + i);
        b_u32x8 = tm_larger_avx2(b_u32x8, x + i + 8);
        c_u32x8 = tm_larger_avx2(c_u32x8, x + i + 16);
        d_u32x8 = tm_larger_avx2(d_u32x8, x + i + 24);
    }
    for (; i + 8 <= n; i += 8)
        a_u32x8 = tm_larger_avx2(a_u32x8, x + i);
    if (i < n)
        a_u32x8 = tm_doubled_larger_avx2(a_u32x8, tm_first8_avx2(x + i, n - i));
    a_u32x8 = _mm256_max_epu32(_mm256_max_epu32(a_u32x8, b_u32x8), _mm256_max_epu32(c_u32x8, d_u32x8));
    __m128i half_u32x4 = _mm_max_epu32(_mm256_castsi256_si128(a_u32x8), _mm256_extracti128_si256(a_u32x8, 1));
    return tm_highest_sse41(half_u32x4);
}

TM_END
TM_BEGIN(avx512)

/* The first `n` of 16 lanes. */
static inline __mmask16 tm_lanes16(size_t n) { return n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff; }

static inline __m512i tm_larger_avx512(__m512i largest_u32x16, __m512i x_u32x16)
{
    return _mm512_max_epu32(largest_u32x16, _mm512_add_epi32(x_u32x16, x_u32x16));
}

static inline uint32_t tm_absmax_avx512(const float *x, size_t n)
{
    __m512i a_u32x16 = _mm512_setzero_si512(), b_u32x16 = a_u32x16, c_u32x16 = a_u32x16, d_u32x16 = a_u32x16;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (size_t j = 0; j < 64; j += 16)
            tm_prefetch_ahead(x + i + j);
        a_u32x16 = tm_larger_avx512(a_u32x16, _mm512_loadu_si512(x + i));
        b_u32x16 = tm_larger_avx512(b_u32x16, _mm512_loadu_si512(x + i + 16));
        c_u32x16 = tm_larger_avx512(c_u32x16, _mm512_loadu_si512(x + i + 32));
        d_u32x16 = tm_larger_avx512(d_u32x16, _mm512_loadu_si512(x + i + 48));
    }
    for (; i < n; i += 16)
        a_u32x16 = tm_larger_avx512(a_u32x16, _mm512_maskz_loadu_epi32(tm_lanes16(n - i), x + i));
    a_u32x16 = _mm512_max_epu32(_mm512_max_epu32(a_u32x16, b_u32x16), _mm512_max_epu32(c_u32x16, d_u32x16));
    return _mm512_reduce_max_epu32(a_u32x16);
}

TM_END

#endif
