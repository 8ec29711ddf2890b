/* Shared by AVX2 and AVX-VNNI for tile80: digits, and the conversion to tile64. Included behind TM_BEGIN, and compiled
 * for the including file's instruction set. */
#ifndef TM_TILE80_ARRANGE_AVX2_H
#define TM_TILE80_ARRANGE_AVX2_H

#include "../digits_avx2.h"

/* In the form that tm_digit_taken takes. */
static inline __m256i tm_tile80_biased(const uint8_t *bytes)
{
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)bytes), _mm256_set1_epi8((char)128));
}

static inline __attribute__((always_inline)) void tm_tile80_arrange_from(
    const int start, const uint8_t *first, const uint8_t *second, size_t groups, uint8_t *to)
{
    for (size_t at = 0; at < groups * TM_TILE; at += 32) {
        __m256i q = tm_tile80_biased(first + at), fields = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int i = 0; i < start; i++)
            q = tm_thrice(q);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            if (start + g == TM_TILE80_DIGITS)
                q = tm_tile80_biased(second + at);
            fields = _mm256_or_si256(fields, _mm256_slli_epi16(tm_digit_taken(&q), 2 * g));
        }
        _mm256_store_si256((__m256i *)(to + at), fields);
    }
}

static void tm_tile80_arrange(const tm_ternary_matmul_args *args, size_t t, size_t k, size_t groups, uint8_t *to)
{
    TM_TILE80_ARRANGE(tm_tile80_arrange_from, tm_tile80_blocks_of(args, t, k), groups, to)
}

#endif
