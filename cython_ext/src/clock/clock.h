/* The native loop: how long a row of calls takes, without Python between them. */
#ifndef TM_CLOCK_H
#define TM_CLOCK_H

#include "../isa.h"

/* Nanoseconds for `n` calls in a row, beginning with calls[first] and cycling through all `count`; count >= 1, first <
 * count.
 *
 * The loop's own cost is one indirect call, about 1 ns; reading CLOCK_MONOTONIC_RAW twice costs some 50 ns a sample.
 * That clock is neither slewed by NTP nor stepped. */
int64_t tm_clock_sample(tm_call *const *calls, size_t count, size_t first, int64_t n);

#endif
