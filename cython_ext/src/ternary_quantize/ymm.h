/* Shared by AVX2 and AVX-512 for ternary_quantize, with 32-byte vectors. */
#ifndef TM_TERNARY_QUANTIZE_YMM_H
#define TM_TERNARY_QUANTIZE_YMM_H

#include "ternary_quantize.h"

#if TM_X86
#include "../absmax_x86.h"

TM_BEGIN(avx2)

static inline void tm_put32(void *to, __m256i bytes_u8x32, int stream)
{
    if (stream) {
        _mm_stream_si128((__m128i *)to, _mm256_castsi256_si128(bytes_u8x32));
        _mm_stream_si128((__m128i *)to + 1, _mm256_extracti128_si256(bytes_u8x32, 1));
    } else {
        _mm256_storeu_si256(to, bytes_u8x32);
    }
}

static inline __m256i tm_times4(__m256i x_i8x32)
{
    __m256i twice_i8x32 = _mm256_add_epi8(x_i8x32, x_i8x32);
    return _mm256_add_epi8(twice_i8x32, twice_i8x32);
}

/* The weighted sum of four codes is correct modulo 256; TM_ZERO_CODES then adds 1 to each field. */
static inline void tm_pack_ymm(const int8_t *codes, uint8_t *packed, int stream)
{
    __m256i sum_i8x32 = _mm256_loadu_si256((const __m256i *)codes);
    for (size_t j = 32; j < TM_GROUP; j += 32)
        sum_i8x32 = _mm256_add_epi8(tm_times4(sum_i8x32), _mm256_loadu_si256((const __m256i *)(codes + j)));
    tm_put32(packed, _mm256_add_epi8(sum_i8x32, _mm256_set1_epi8(TM_ZERO_CODES)), stream);
}

TM_END
#endif

#endif
