/* The tables of tl2 in vectors of 32 bytes, for AVX2 and above. */
#ifndef TM_TL2_AVX2_H
#define TM_TL2_AVX2_H

#include "../lut_avx2.h"

/* The tables of 64 bytes of weights, for number `nth` of their four fields. */
static inline void put(uint8_t *tables, int nth, __m256i digits)
{
    uint8_t *to = tables + nth % 2 * 128 + nth / 2 * 32;
    _mm256_store_si256((__m256i *)to, _mm256_permute4x64_epi64(digits, 0x44));
    _mm256_store_si256((__m256i *)(to + 64), _mm256_permute4x64_epi64(digits, 0xee));
}

/* Fills tables [begin, end) of all rows of activations. */
static void fill(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t each = tm_tl2_each(args), triples = tm_tl2_tripled(args) / TM_TL2_TRIPLES;
    for (size_t t = begin; t < end; t++) {
        const size_t nth_of_row = t % each;
        const int8_t *a = args->a + t / each * args->lda;
        uint8_t *tables = args->tables + t * TM_TL2_TABLES;
        if (nth_of_row < triples)
            for (int nth = 0; nth < 4; nth++)
                put(tables, nth, tm_lut_triple(a + nth_of_row * TM_TL2_TRIPLES + 3 * nth));
        else
            for (int nth = 0; nth < 4; nth++)
                put(tables, nth,
                    tm_lut_pair(a + triples * TM_TL2_TRIPLES + (nth_of_row - triples) * TM_TL2_PAIRS + 2 * nth));
    }
}

#endif
