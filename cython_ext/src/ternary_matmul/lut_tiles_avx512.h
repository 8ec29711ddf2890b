/* Conversion of tl1 and tl2 to tile64 (tiles.h) with AVX-512, for several rows of activations. Included behind
 * TM_BEGIN(avx512).
 *
 * The quarters of a vector hold a tile's quarters, 16 rows each, a byte a row. Codes are looked up at the bits of their
 * quarter in tile64, so a column of the tile is the or of four quarters. */
#ifndef TM_LUT_TILES_AVX512_H
#define TM_LUT_TILES_AVX512_H

#include "tiles_avx512.h"

/* A table of 16 codes, for each quarter. */
static inline __m512i tm_lut_codes(__m128i codes)
{
    const __m512i by = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(2), 1)),
        _mm256_inserti128_si256(_mm256_set1_epi16(4), _mm_set1_epi16(6), 1), 1);
    return _mm512_sllv_epi16(_mm512_broadcast_i32x4(codes), by);
}

/* The or of the halves of each vector; two vectors give one. */
static inline __m512i tm_lut_halved(__m512i low, __m512i high)
{
    return _mm512_or_si512(_mm512_shuffle_i64x2(low, high, 0x44), _mm512_shuffle_i64x2(low, high, 0xee));
}

/* A group of tile64 from its four columns. */
static inline void tm_lut_group(const __m512i *column, uint8_t *to)
{
    const __m512i low = tm_lut_halved(column[0], column[1]), high = tm_lut_halved(column[2], column[3]);
    const __m512i columns = /* one a quarter */
        _mm512_or_si512(_mm512_shuffle_i64x2(low, high, 0x88), _mm512_shuffle_i64x2(low, high, 0xdd));
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i turned = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    _mm512_store_si512(to, _mm512_shuffle_epi8(_mm512_permutexvar_epi32(fours, columns), turned));
}

/* A group of bytes that are two pairs each, the first in the high nibble. */
static inline void tm_lut_pairs(__m512i bytes, uint8_t *to)
{
    const __m512i m15 = _mm512_set1_epi8(15);
    const __m512i codes[2] = {tm_lut_codes(TM_LUT_PAIR_CODES_0), tm_lut_codes(TM_LUT_PAIR_CODES_1)};
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), m15), low = _mm512_and_si512(bytes, m15);
    const __m512i columns[4] = {
        _mm512_shuffle_epi8(codes[0], high), _mm512_shuffle_epi8(codes[1], high), _mm512_shuffle_epi8(codes[0], low),
        _mm512_shuffle_epi8(codes[1], low)};
    tm_lut_group(columns, to);
}

#endif
