/* turned_avx2.h with AVX-512. Included behind TM_BEGIN(avx512). */
#ifndef TM_TURNED_AVX512_H
#define TM_TURNED_AVX512_H

/* The bits of `one` under the mask, those of `other` elsewhere. */
static inline __m512i tm_tiles_merged(int mask, __m512i one, __m512i other)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), one, other, 0xca);
}

/* See turned_avx2.h. */
static inline void tm_tiles_turned(const __m512i w[4], __m512i turned[4])
{
    const __m512i low01 = tm_tiles_merged(0x33, w[0], _mm512_slli_epi16(w[1], 2));
    const __m512i high01 = tm_tiles_merged(0x33, _mm512_srli_epi16(w[0], 2), w[1]);
    const __m512i low23 = tm_tiles_merged(0x33, w[2], _mm512_slli_epi16(w[3], 2));
    const __m512i high23 = tm_tiles_merged(0x33, _mm512_srli_epi16(w[2], 2), w[3]);
    turned[0] = tm_tiles_merged(0x0f, low01, _mm512_slli_epi16(low23, 4));
    turned[1] = tm_tiles_merged(0x0f, high01, _mm512_slli_epi16(high23, 4));
    turned[2] = tm_tiles_merged(0x0f, _mm512_srli_epi16(low01, 4), low23);
    turned[3] = tm_tiles_merged(0x0f, _mm512_srli_epi16(high01, 4), high23);
}

#endif
