/* Sums of digits in 64-byte vectors, see lut_avx2.h. Included behind TM_BEGIN(avx512). */
#ifndef TM_LUT_AVX512_H
#define TM_LUT_AVX512_H

#include "lut_avx2.h"

/* tm_lut_add for vectors twice as wide. */
static inline __m512i tm_lut_wide_add(__m512i sum, __m512i term)
{
    sum = _mm512_add_epi8(sum, term);
    __asm__("" : "+v"(sum));
    return sum;
}

/* tm_lut_flush for vectors twice as wide. */
static inline void tm_lut_wide_flush(__m512i low, __m512i high, __m512i *s_i16x32)
{
    const __m512i top = _mm512_set1_epi8(-128), digits = _mm512_set1_epi16(TM_LUT_BASE << 8 | 1);
    low = _mm512_xor_si512(low, top), high = _mm512_xor_si512(high, top);
    s_i16x32[0] = _mm512_add_epi16(s_i16x32[0], _mm512_maddubs_epi16(_mm512_unpacklo_epi8(low, high), digits));
    s_i16x32[1] = _mm512_add_epi16(s_i16x32[1], _mm512_maddubs_epi16(_mm512_unpackhi_epi8(low, high), digits));
}

/* tm_lut_widen for 32 sums. */
static inline void tm_lut_wide_widen(__m512i s_i16x32, size_t flushes, int32_t *acc)
{
    s_i16x32 = _mm512_sub_epi16(s_i16x32, _mm512_set1_epi16((int16_t)(flushes * TM_LUT_BIAS)));
    const __m512i first = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(s_i16x32));
    const __m512i second = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(s_i16x32, 1));
    _mm512_storeu_si512(acc, _mm512_add_epi32(_mm512_loadu_si512(acc), first));
    _mm512_storeu_si512(acc + 16, _mm512_add_epi32(_mm512_loadu_si512(acc + 16), second));
}

#endif
