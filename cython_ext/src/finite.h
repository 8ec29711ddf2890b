/* Detection of NaN and infinity during a kernel's pass: it keeps the largest of its elements' doubled bits (the sign is
 * shifted out), and searches the range for the first one only if that is not finite. */
#ifndef TM_FINITE_H
#define TM_FINITE_H

#include "isa.h"

#include <string.h>

/* Doubled bits of infinity; those of a NaN are above. */
#define TM_DOUBLED_INF 0xff000000u

static inline uint32_t tm_bits(const float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits;
}

/* Index of the first NaN or infinity in [begin, end), or `end`. */
static inline size_t tm_first_nonfinite(const float *x, size_t begin, size_t end)
{
    while (begin < end && tm_bits(x + begin) * 2 < TM_DOUBLED_INF)
        begin++;
    return begin;
}

/* Lowers run->bad to `index`; threads may call it in any order. */
static inline void tm_report_bad(tm_run *run, size_t index)
{
    int64_t at = (int64_t)index, known = __atomic_load_n(&run->bad, __ATOMIC_RELAXED);
    while ((known < 0 || at < known) &&
           !__atomic_compare_exchange_n(&run->bad, &known, at, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* A thread's check of its range, given the largest doubled bits in it. */
static inline void tm_check_finite(tm_run *run, const float *x, size_t begin, size_t end, uint32_t largest)
{
    if (largest >= TM_DOUBLED_INF)
        tm_report_bad(run, tm_first_nonfinite(x, begin, end));
}

#endif
