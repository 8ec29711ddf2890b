/* The last numbers of a row, fewer than a vector: loaded without reading past them; codes are stored likewise. A loop
 * over single numbers is slower than plain C for the whole row: compilers make each maximum a branch, which is
 * mispredicted. */
#ifndef TM_FEW_H
#define TM_FEW_H

#include "intrinsics.h"
#include "isa.h"

#include <string.h>

#if TM_X86
/* Fewer than eight 16-bit numbers, at least one, from the lowest bits: the first four, and the others. */
static inline __attribute__((always_inline)) uint64_t tm_few16_low(const uint16_t *x, size_t n)
{
    if (n >= 4) {
        uint64_t four;
        memcpy(&four, x, sizeof four);
        return four;
    }
    if (n == 1)
        return x[0];
    uint32_t two;
    memcpy(&two, x, sizeof two);
    return two | (uint64_t)x[n - 1] << 16 * (n - 1);
}

static inline __attribute__((always_inline)) uint64_t tm_few16_high(const uint16_t *x, size_t n)
{
    if (n < 5)
        return 0;
    uint64_t last;
    memcpy(&last, x + n - 4, sizeof last);
    return last >> 16 * (8 - n);
}

/* Stores `n` codes, 1 to 8, from the lowest bits of a word. */
static inline __attribute__((always_inline)) void tm_store_codes(int8_t *q, uint64_t codes, size_t n)
{
    if (n >= 4) { /* the two stores may overlap */
        const uint32_t first = (uint32_t)codes, last = (uint32_t)(codes >> 8 * (n - 4));
        memcpy(q, &first, sizeof first);
        memcpy(q + n - 4, &last, sizeof last);
        return;
    }
    q[0] = (int8_t)codes;
    if (n > 1) {
        q[1] = (int8_t)(codes >> 8);
        q[n - 1] = (int8_t)(codes >> 8 * (n - 1));
    }
}

TM_BEGIN(sse41)

static inline __m128i tm_few16(const uint16_t *x, size_t n)
{
    return _mm_set_epi64x((int64_t)tm_few16_high(x, n), (int64_t)tm_few16_low(x, n));
}

/* The first `n` of 4 lanes, 1 to 3; the others are 0. */
static inline __m128i tm_first3_sse41(const float *x, size_t n)
{
    if (n == 1)
        return _mm_castps_si128(_mm_load_ss(x));
    const __m128i two = _mm_loadl_epi64((const __m128i *)x);
    return n == 2 ? two : _mm_unpacklo_epi64(two, _mm_castps_si128(_mm_load_ss(x + 2)));
}

TM_END
TM_BEGIN(avx2)

/* The first `n` of 8 lanes; the others are 0, and are not read. */
static inline __m256i tm_first8_avx2(const float *x, size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32((const int *)x, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes));
}

TM_END
#endif

#endif
