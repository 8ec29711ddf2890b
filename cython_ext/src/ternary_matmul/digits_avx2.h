/* Base-3 digits in 32 bytes, five to a byte as in ggml (kernels/formats/digits.py). Included behind TM_BEGIN, and
 * compiled for the including file's instruction set. */
#ifndef TM_DIGITS_AVX2_H
#define TM_DIGITS_AVX2_H

/* Each byte times 3, modulo 256. */
static inline __m256i tm_thrice(__m256i q) { return _mm256_add_epi8(_mm256_add_epi8(q, q), q); }

/* The digits of bytes that are 128 more than the format's, so that comparisons of signed bytes work. Sets *q to 128
 * more than the bytes of the next digits: 3 * 128 is 128 modulo 256. */
static inline __attribute__((always_inline)) __m256i tm_digit_taken(__m256i *q)
{
    __m256i one_up = _mm256_set1_epi8(85 - 128), two_up = _mm256_set1_epi8(170 - 128);
    /* GCC 12 compares with a known constant in two instructions. */
    __asm__("" : "+x"(one_up), "+x"(two_up));
    const __m256i some = _mm256_cmpgt_epi8(*q, one_up), two = _mm256_cmpgt_epi8(*q, two_up);
    *q = tm_thrice(*q);
    return _mm256_abs_epi8(_mm256_add_epi8(some, two));
}

#endif
