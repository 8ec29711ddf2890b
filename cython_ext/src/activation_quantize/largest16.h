/* The largest of 16-bit numbers with SSE4.1, and the rest of a row for all instruction sets of x86. */
#ifndef TM_LARGEST16_H
#define TM_LARGEST16_H

#include "../absmax_x86.h"

TM_BEGIN(sse41)

static inline uint16_t tm_highest16_sse41(__m128i u16x8)
{
    /* The instruction finds the smallest of eight. */
    const __m128i ones_u16x8 = _mm_set1_epi16(-1);
    return (uint16_t)~_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(u16x8, ones_u16x8)), 0);
}

static inline __m128i tm_larger16_sse41(__m128i largest_u16x8, __m128i x_u16x8)
{
    return _mm_max_epu16(largest_u16x8, _mm_add_epi16(x_u16x8, x_u16x8));
}

/* The largest of `largest` and the doubled bits of x[0..n). */
static inline uint16_t tm_rest16(const uint16_t *x, size_t n, __m128i largest_u16x8)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        largest_u16x8 = tm_larger16_sse41(largest_u16x8, _mm_loadu_si128((const __m128i *)(x + i)));
    if (i < n)
        largest_u16x8 = tm_larger16_sse41(largest_u16x8, tm_few16(x + i, n - i));
    return tm_highest16_sse41(largest_u16x8);
}

TM_END

#endif
