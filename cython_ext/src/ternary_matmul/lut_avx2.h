/* Look-up tables and sums of their digits in 32-byte vectors. Included behind TM_BEGIN, and compiled for the including
 * file's instruction set. */
#ifndef TM_LUT_AVX2_H
#define TM_LUT_AVX2_H

/* Factors of the columns in the entries of a table: field 3 * (w0 + 1) + w1 + 1 of a pair, value 9 w0 + 3 w1 + w2 of a
 * triple. */
#define TM_LUT_PAIR_0 _mm256_setr_epi16(-1, -1, -1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0)
#define TM_LUT_PAIR_1 _mm256_setr_epi16(-1, 0, 1, -1, 0, 1, -1, 0, 1, 0, 0, 0, 0, 0, 0, 0)
#define TM_LUT_TRIPLE_0 _mm256_setr_epi16(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)
#define TM_LUT_TRIPLE_1 _mm256_setr_epi16(0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 0, 0)
#define TM_LUT_TRIPLE_2 _mm256_setr_epi16(0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, 0, 0)

/* The codes w + 1 of the same entries. */
#define TM_LUT_PAIR_CODES_0 _mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0)
#define TM_LUT_PAIR_CODES_1 _mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0)
#define TM_LUT_TRIPLE_CODES_0 _mm_setr_epi8(1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0)
#define TM_LUT_TRIPLE_CODES_1 _mm_setr_epi8(1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0)
#define TM_LUT_TRIPLE_CODES_2 _mm_setr_epi8(1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0)

static inline __m256i tm_lut_times(__m256i w_i16x16, int8_t a)
{
    return _mm256_sign_epi16(_mm256_set1_epi16(a), w_i16x16);
}

/* The low digits of 16 entries in the low 16 bytes, the high digits in the others. 1057 / 2^15 differs from 1/31 by
 * 2e-7 of it, so mulhrs rounds to nearest: 31 is odd, and an entry is under 2^9. */
static inline __m256i tm_lut_digits(__m256i e_i16x16)
{
    const __m256i high = _mm256_mulhrs_epi16(e_i16x16, _mm256_set1_epi16(1057));
    const __m256i low = _mm256_sub_epi16(_mm256_add_epi16(e_i16x16, high), _mm256_slli_epi16(high, 5));
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
}

static inline __m256i tm_lut_pair(const int8_t *a)
{
    return tm_lut_digits(_mm256_add_epi16(tm_lut_times(TM_LUT_PAIR_0, a[0]), tm_lut_times(TM_LUT_PAIR_1, a[1])));
}

static inline __m256i tm_lut_triple(const int8_t *a)
{
    return tm_lut_digits(_mm256_add_epi16(
        _mm256_add_epi16(tm_lut_times(TM_LUT_TRIPLE_0, a[0]), tm_lut_times(TM_LUT_TRIPLE_1, a[1])),
        tm_lut_times(TM_LUT_TRIPLE_2, a[2])));
}

/* A sum of digits. The asm keeps compilers from adding the terms of several look-ups first, which spills. */
static inline __m256i tm_lut_add(__m256i sum, __m256i term)
{
    sum = _mm256_add_epi8(sum, term);
    __asm__("" : "+x"(sum));
    return sum;
}

/* Adds the digits' sums of up to TM_LUT_FLUSH look-ups to int16 sums: the low 8 bytes of each 16 to s[0], the others to
 * s[1]. Each is TM_LUT_BIAS too large. */
static inline void tm_lut_flush(__m256i low, __m256i high, __m256i *s_i16x16)
{
    const __m256i top = _mm256_set1_epi8(-128), digits = _mm256_set1_epi16(TM_LUT_BASE << 8 | 1);
    low = _mm256_xor_si256(low, top), high = _mm256_xor_si256(high, top);
    s_i16x16[0] = _mm256_add_epi16(s_i16x16[0], _mm256_maddubs_epi16(_mm256_unpacklo_epi8(low, high), digits));
    s_i16x16[1] = _mm256_add_epi16(s_i16x16[1], _mm256_maddubs_epi16(_mm256_unpackhi_epi8(low, high), digits));
}

/* Adds 16 int16 sums, `flushes` times TM_LUT_BIAS too large, to int32 ones. */
static inline void tm_lut_widen(__m256i s_i16x16, size_t flushes, int32_t *acc)
{
    s_i16x16 = _mm256_sub_epi16(s_i16x16, _mm256_set1_epi16((int16_t)(flushes * TM_LUT_BIAS)));
    __m256i *to = (__m256i *)acc;
    const __m256i first = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(s_i16x16));
    const __m256i second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(s_i16x16, 1));
    _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), first));
    _mm256_storeu_si256(to + 1, _mm256_add_epi32(_mm256_loadu_si256(to + 1), second));
}

#endif
