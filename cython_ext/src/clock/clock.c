#include "clock.h"

#include <time.h>

static inline int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

int64_t tm_clock_sample(tm_call *const *calls, size_t count, size_t first, int64_t n)
{
    size_t at = first;
    int64_t begin = now();
    for (int64_t i = 0; i < n; i++) {
        calls[at]->fn(calls[at]->args);
        if (++at == count)
            at = 0;
    }
    return now() - begin;
}
