/* The tables of tl1 in vectors of 32 bytes, for AVX2 and above. */
#ifndef TM_TL1_AVX2_H
#define TM_TL1_AVX2_H

#include "../lut_avx2.h"

/* Fills tables [begin, end) of all rows of activations. */
static void fill(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t each = tm_tl1_each(args);
    for (size_t t = begin; t < end; t++) {
        const int8_t *a = args->a + t / each * args->lda + t % each * TM_TL1_COLUMNS;
        for (int pair = 0; pair < 2; pair++) {
            const __m256i first = tm_lut_pair(a + 2 * pair), second = tm_lut_pair(a + 2 * pair + 4);
            __m256i *to = (__m256i *)(args->tables + t * TM_TL1_TABLES + 64 * pair);
            _mm256_store_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
            _mm256_store_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
        }
    }
}

#endif
