/* Transposition of codes for formats that are converted to tile64 (tiles.h), with AVX2. Included behind TM_BEGIN. */
#ifndef TM_TURNED_AVX2_H
#define TM_TURNED_AVX2_H

/* The bits of `one` under the mask, those of `other` elsewhere. */
static inline __m256i tm_tiles_merged(int mask, __m256i one, __m256i other)
{
    const __m256i m = _mm256_set1_epi8((char)mask);
    return _mm256_or_si256(_mm256_and_si256(m, one), _mm256_andnot_si256(m, other));
}

/* Transposes the four codes of each byte with those of the same byte of the other three vectors: `turned` i holds code
 * i of all, from the lowest bits, that of w[q] at bits 2 q. */
static inline void tm_tiles_turned(const __m256i w[4], __m256i turned[4])
{
    const __m256i low01 = tm_tiles_merged(0x33, w[0], _mm256_slli_epi16(w[1], 2));
    const __m256i high01 = tm_tiles_merged(0x33, _mm256_srli_epi16(w[0], 2), w[1]);
    const __m256i low23 = tm_tiles_merged(0x33, w[2], _mm256_slli_epi16(w[3], 2));
    const __m256i high23 = tm_tiles_merged(0x33, _mm256_srli_epi16(w[2], 2), w[3]);
    turned[0] = tm_tiles_merged(0x0f, low01, _mm256_slli_epi16(low23, 4));
    turned[1] = tm_tiles_merged(0x0f, high01, _mm256_slli_epi16(high23, 4));
    turned[2] = tm_tiles_merged(0x0f, _mm256_srli_epi16(low01, 4), low23);
    turned[3] = tm_tiles_merged(0x0f, _mm256_srli_epi16(high01, 4), high23);
}

#endif
