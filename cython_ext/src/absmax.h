/* The largest absolute value of a run of floats, as doubled bits (finite.h): an integer maximum is exact in any order,
 * and loses no NaN.
 *
 * These loops read an array for the first time, so they prefetch 512 bytes ahead into L2; see
 * docs/kernels/quantizers.md. */
#ifndef TM_ABSMAX_H
#define TM_ABSMAX_H

#include "finite.h"

enum { TM_AHEAD_BYTES = 512 };

/* Prefetching past the end of an array does no harm, but such a pointer would be undefined behavior. */
static inline void tm_prefetch_ahead(const float *x)
{
    __builtin_prefetch((const void *)((uintptr_t)x + TM_AHEAD_BYTES), 0, 2);
}

/* The absolute value with these doubled bits. */
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
