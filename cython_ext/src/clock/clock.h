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

/* `rows` rows of `width` bytes that lie together at `from`, to where they lie `stride` bytes apart. */
typedef struct tm_change {
    char *to;
    const char *from;
    size_t rows, width, stride;
} tm_change;

/* The same behind `warm` calls more, which are not timed, with changes made before timed call `before`, up to n, which
 * are not timed either. A kernel that tells how long ago it was called sees little else than a call that came at once:
 * what pause there is are two readings of the clock and the copies, of which the caches have both ends already. */
int64_t tm_clock_sample_around(
    tm_call *const *calls, size_t count, size_t first, int64_t warm, int64_t n, int64_t before,
    const tm_change *changes, size_t change_count);

#endif
