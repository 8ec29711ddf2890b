/* The tables of tl2 in vectors of 32 bytes, for AVX2 and what is above it. */
#ifndef TM_TL2_AVX2_H
#define TM_TL2_AVX2_H

#include "../lut_avx2.h"

/* The tables of 64 bytes of weights; `nth` of their four fields. */
static inline void put(uint8_t *tables, int nth, __m256i digits)
{
    uint8_t *to = tables + nth % 2 * 128 + nth / 2 * 32;
    _mm256_store_si256((__m256i *)to, _mm256_permute4x64_epi64(digits, 0x44));
    _mm256_store_si256((__m256i *)(to + 64), _mm256_permute4x64_epi64(digits, 0xee));
}

static void fill(const tm_ternary_matmul_args *args)
{
    const size_t tripled = tm_tl2_tripled(args);
    for (size_t m = 0; m < args->M; m++) {
        uint8_t *tables = args->tables + m * tm_tl2_row(args);
        const int8_t *a = args->a + m * args->lda;
        for (size_t k = 0; k < tripled; k += TM_TL2_TRIPLES, tables += TM_TL2_TABLES)
            for (int nth = 0; nth < 4; nth++)
                put(tables, nth, tm_lut_triple(a + k + 3 * nth));
        for (size_t k = tripled; k < args->K; k += TM_TL2_PAIRS, tables += TM_TL2_TABLES)
            for (int nth = 0; nth < 4; nth++)
                put(tables, nth, tm_lut_pair(a + k + 2 * nth));
    }
}

#endif
