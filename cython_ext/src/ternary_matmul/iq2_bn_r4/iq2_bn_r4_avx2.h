/* Shared by AVX2 and AVX-VNNI for iq2_bn_r4: half a block, 32 columns of each of four rows. Included behind
 * TM_BEGIN. */
#ifndef TM_IQ2_BN_R4_AVX2_H
#define TM_IQ2_BN_R4_AVX2_H

static inline __m256i tm_four_half(const void *bytes) { return _mm256_loadu_si256((const __m256i *)bytes); }

/* Four columns of each 16, repeated in all 16. */
static inline __attribute__((always_inline)) __m256i tm_four_spread(__m256i x, int s)
{
    switch (s) {
    case 0: return _mm256_shuffle_epi32(x, 0x00);
    case 1: return _mm256_shuffle_epi32(x, 0x55);
    case 2: return _mm256_shuffle_epi32(x, 0xaa);
    default: return _mm256_shuffle_epi32(x, 0xff);
    }
}

/* The sums of four rows, of which each half holds a part. */
static inline void tm_four_sums(__m256i s_i32x8, int32_t *acc)
{
    _mm_storeu_si128(
        (__m128i *)acc, _mm_add_epi32(_mm256_castsi256_si128(s_i32x8), _mm256_extracti128_si256(s_i32x8, 1)));
}

#endif
