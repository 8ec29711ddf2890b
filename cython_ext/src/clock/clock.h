/* The native loop: the time of a sequence of calls, without Python between them. */
#ifndef TM_CLOCK_H
#define TM_CLOCK_H

#include "../isa.h"

/* Nanoseconds for `n` calls in a row, beginning with calls[first] and cycling through all `count`; count >= 1, first <
 * count.
 *
 * The loop's own cost is one indirect call, about 1 ns; reading CLOCK_MONOTONIC_RAW twice costs about 50 ns a sample.
 * That clock is neither slewed by NTP nor stepped. */
int64_t tm_clock_sample(tm_call *const *calls, size_t count, size_t first, int64_t n);

/* Copies `rows` rows of `width` bytes, contiguous at `from`, to rows that lie `stride` bytes apart. */
typedef struct tm_change {
    char *to;
    const char *from;
    size_t rows, width, stride;
} tm_change;

/* The same after `warm` untimed calls, with changes made before timed call `before`, up to n; the changes are not
 * timed. For a kernel that measures the time since its last call, the pause is short: two readings of the clock and
 * copies between cached lines. */
int64_t tm_clock_sample_around(
    tm_call *const *calls, size_t count, size_t first, int64_t warm, int64_t n, int64_t before,
    const tm_change *changes, size_t change_count);

#endif
