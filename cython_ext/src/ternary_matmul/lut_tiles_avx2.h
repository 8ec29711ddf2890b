/* Conversion of tl1 and tl2 to tile64 (tiles.h) with AVX2, for several rows of activations. Included behind
 * TM_BEGIN(avx2).
 *
 * The halves of two vectors hold a tile's quarters, 16 rows each, a byte a row. Codes are looked up at the bits of
 * their quarter in tile64, so a column of the tile is the or of four quarters. */
#ifndef TM_LUT_TILES_AVX2_H
#define TM_LUT_TILES_AVX2_H

#include "tiles_avx2.h"

/* A table of 16 codes, for the quarters of vector `nth`. */
static inline __m256i tm_lut_codes(__m128i codes, int nth)
{
    const __m256i by = _mm256_inserti128_si256(_mm256_set1_epi16(1), _mm_set1_epi16(4), 1);
    return _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_broadcastsi128_si256(codes), by), 4 * nth);
}

/* A group of tile64 from its four columns. */
static inline void tm_lut_group(const __m256i (*column)[2], uint8_t *to)
{
    __m256i half[4], two[2];
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++)
        half[c] = _mm256_or_si256(column[c][0], column[c][1]);
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++) /* two columns */
        two[c] = _mm256_or_si256(
            _mm256_permute2x128_si256(half[2 * c], half[2 * c + 1], 0x20),
            _mm256_permute2x128_si256(half[2 * c], half[2 * c + 1], 0x31));
    const __m256i fours = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i turned =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i low = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi32(two[0], two[1]), fours);
    const __m256i high = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi32(two[0], two[1]), fours);
    _mm256_store_si256((__m256i *)to, _mm256_shuffle_epi8(low, turned));
    _mm256_store_si256((__m256i *)(to + 32), _mm256_shuffle_epi8(high, turned));
}

/* A group of bytes that are two pairs each, the first in the high nibble. */
static inline void tm_lut_pairs(__m256i low, __m256i high, uint8_t *to)
{
    const __m256i m15 = _mm256_set1_epi8(15), bytes[2] = {low, high};
    __m256i column[4][2];
#pragma GCC unroll 2
    for (int nth = 0; nth < 2; nth++) {
        const __m256i first = tm_lut_codes(TM_LUT_PAIR_CODES_0, nth), second = tm_lut_codes(TM_LUT_PAIR_CODES_1, nth);
        const __m256i one = _mm256_and_si256(_mm256_srli_epi16(bytes[nth], 4), m15);
        const __m256i two = _mm256_and_si256(bytes[nth], m15);
        column[0][nth] = _mm256_shuffle_epi8(first, one), column[1][nth] = _mm256_shuffle_epi8(second, one);
        column[2][nth] = _mm256_shuffle_epi8(first, two), column[3][nth] = _mm256_shuffle_epi8(second, two);
    }
    tm_lut_group(column, to);
}

#endif
