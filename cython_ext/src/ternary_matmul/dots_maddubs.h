/* Sums of products with AVX2. Included behind TM_BEGIN; dots_dpbusd.h is its replacement with AVX-VNNI.
 *
 * Two int16 lanes for each int32 lane: one sums the products of activations 0 and 1 of each four, the other those of 2
 * and 3. A maddubs adds at most 2 * 3 * 128 in magnitude, and does not saturate. */
#ifndef TM_DOTS_MADDUBS_H
#define TM_DOTS_MADDUBS_H

/* GCC 12 keeps two copies of sums of type __m256i, as int64 lanes and as the int16 lanes that are added, and spills. */
typedef int16_t tm_dots __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) tm_dots tm_dots_added(tm_dots s, __m256i codes, __m256i x)
{
    return s + (tm_dots)_mm256_maddubs_epi16(codes, x);
}

/* Lanes of int32. */
static inline __attribute__((always_inline)) __m256i tm_dots_sum(tm_dots s)
{
    return _mm256_madd_epi16((__m256i)s, _mm256_set1_epi16(1));
}

/* Initial value of two lanes for sums of up to 256 weights (a multiple of 32), so that codes count as weights, code -
 * 1: minus the sum of the activations. In the end a lane is the sum of 128 products by weights from -1 to 2, between
 * 128 * 2 * -128 = -32768 and 128 * 2 * 127 = 32512, so it is exact; additions before may wrap modulo 2^16. */
static inline int32_t tm_dots_start(const int8_t *x, size_t weights)
{
    const __m256i ones = _mm256_set1_epi8(1);
    tm_dots s = {0};
    for (size_t i = 0; i < weights; i += 32)
        s -= (tm_dots)_mm256_maddubs_epi16(ones, _mm256_loadu_si256((const __m256i *)(x + i)));
    __m128i half = _mm_add_epi16(_mm256_castsi256_si128((__m256i)s), _mm256_extracti128_si256((__m256i)s, 1));
    half = _mm_add_epi16(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(half, _mm_shuffle_epi32(half, 0xb1)));
}

#endif
