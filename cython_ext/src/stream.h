/* Writes around the caches: an output larger than any cache is stored without reading its lines first. Such stores need
 * aligned addresses. */
#ifndef TM_STREAM_H
#define TM_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* Number of elements of `size` bytes at `out` before the first one on a boundary of `bytes`, at most `n`. */
static inline size_t tm_until_aligned(const void *out, size_t size, size_t bytes, size_t n)
{
    size_t lead = (0 - (uintptr_t)out) % bytes / size;
    return lead < n ? lead : n;
}

#endif
