/* Sums across the lanes of vectors, for kernels over rows. Included behind TM_BEGIN, and compiled for the including
 * file's instruction set. */
#ifndef TM_ROWS_AVX2_H
#define TM_ROWS_AVX2_H

/* Of one vector. */
static inline int32_t tm_sum_of(__m256i v_i32x8)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v_i32x8), _mm256_extracti128_si256(v_i32x8, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* Of each half of four vectors, side by side in that half. */
static inline __m256i tm_half_sums_of(const __m256i *v)
{
    const __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    const __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Of each of four vectors, side by side. */
static inline __m128i tm_sums_of(const __m256i *v)
{
    const __m256i s = tm_half_sums_of(v);
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

#endif
