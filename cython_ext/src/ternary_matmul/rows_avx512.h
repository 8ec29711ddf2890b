/* Shared by kernels over rows with AVX-512. Included behind TM_BEGIN(avx512). */
#ifndef TM_ROWS_AVX512_H
#define TM_ROWS_AVX512_H

#include "dot_avx512.h"
#include "rows_avx2.h"

/* 32 bytes from each of two addresses. */
static inline __m512i tm_halves(const int8_t *low, const int8_t *high)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)low)), _mm256_loadu_si256((const __m256i *)high), 1);
}

/* Compilers fold a load into each of its uses, so it becomes four; some cores have one such load a cycle. */
static inline __m512i tm_loaded(const uint8_t *bytes)
{
    __m512i w = _mm512_loadu_si512(bytes);
    __asm__("" : "+v"(w));
    return w;
}

/* Each quarter holds the sums of that quarter of the four vectors. */
static inline __m512i tm_quarter_sums_of(const __m512i *v)
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The sums of the quarters of one vector. */
static inline __m128i tm_sums_of_quarters(__m512i v)
{
    const __m512i firsts = _mm512_zextsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, 0x4e));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, 0xb1));
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, v));
}

/* tm_sums_of for vectors twice as wide. */
static inline __m128i tm_wide_sums_of(const __m512i *v)
{
    const __m512i s = tm_quarter_sums_of(v);
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#endif
