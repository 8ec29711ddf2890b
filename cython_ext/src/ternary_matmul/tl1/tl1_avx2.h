/* The tables of tl1 in vectors of 32 bytes, for AVX2 and what is above it. */
#ifndef TM_TL1_AVX2_H
#define TM_TL1_AVX2_H

#include "../lut_avx2.h"

static void fill(const tm_ternary_matmul_args *args)
{
    for (size_t m = 0; m < args->M; m++) {
        uint8_t *tables = args->tables + m * tm_tl1_row(args->K);
        const int8_t *a = args->a + m * args->lda;
        for (size_t k = 0; k < args->K; k += TM_TL1_COLUMNS, tables += TM_TL1_TABLES)
            for (int pair = 0; pair < 2; pair++) {
                const __m256i first = tm_lut_pair(a + k + 2 * pair), second = tm_lut_pair(a + k + 2 * pair + 4);
                __m256i *to = (__m256i *)(tables + 64 * pair);
                _mm256_store_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
                _mm256_store_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
            }
    }
}

#endif
