/* The largest absolute value of a run of floats, as doubled bits (finite.h): an integer maximum is exact in any order,
 * and no NaN is lost in it.
 *
 * These loops are where an array is read for the first time, so they prefetch, a little way ahead and into the L2;
 * avx512.c of ternary_quantize has the measurements. */
#ifndef TM_ABSMAX_H
#define TM_ABSMAX_H

#include "finite.h"

enum { TM_AHEAD_BYTES = 512 };

/* Prefetching past the end of an array does no harm, but a pointer to there would be undefined. */
static inline void tm_prefetch_ahead(const float *x)
{
    __builtin_prefetch((const void *)((uintptr_t)x + TM_AHEAD_BYTES), 0, 2);
}

/* The absolute value that doubled bits stand for. */
static inline float tm_from_doubled(uint32_t doubled)
{
    uint32_t bits = doubled >> 1;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The larger of `largest` and the doubled bits of x[0..n). */
static inline uint32_t tm_absmax_plain(const float *x, size_t n, uint32_t largest)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t doubled = tm_bits(x + i) * 2;
        largest = doubled > largest ? doubled : largest;
    }
    return largest;
}

#endif
