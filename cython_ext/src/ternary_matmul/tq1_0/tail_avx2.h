/* Shared by the instruction sets: tq1_0's last 20 bytes. Included behind TM_BEGIN, and compiled for the including
 * file's instruction set. */
#ifndef TM_TQ1_0_TAIL_AVX2_H
#define TM_TQ1_0_TAIL_AVX2_H

#include "../digits_avx2.h"

/* The 4 bytes of the last part, also times 3, 9 and 27: digit 0 of each byte is the digit of one of 16 adjacent
 * weights. */
static inline __m128i tm_tq1_0_third(const uint8_t *group)
{
    int32_t bytes;
    memcpy(&bytes, group + TM_TQ1_0_THIRD, sizeof bytes);
    const __m128i q = _mm_set1_epi32(bytes), powers = _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27);
    const __m128i low = _mm_set1_epi16(0x00ff);
    return _mm_or_si128(
        _mm_and_si128(_mm_mullo_epi16(q, powers), low), _mm_mullo_epi16(_mm_andnot_si128(low, q), powers));
}

/* For the last 96 weights, 32 adjacent ones in each vector, the byte whose digit 0 is theirs. */
static inline __attribute__((always_inline)) void tm_tq1_0_last(const uint8_t *group, __m256i v[3])
{
    const __m128i q = _mm_loadu_si128((const __m128i *)(group + TM_TQ1_0_SECOND));
    const __m128i next = _mm_add_epi8(_mm_add_epi8(q, q), q);
    v[0] = _mm256_inserti128_si256(_mm256_castsi128_si256(q), next, 1);
    v[1] = tm_thrice(tm_thrice(v[0]));
    v[2] = _mm256_inserti128_si256(tm_thrice(tm_thrice(v[1])), tm_tq1_0_third(group), 1);
}

#endif
