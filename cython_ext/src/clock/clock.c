#include "clock.h"

#include <string.h>
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

/* Loads what changes copy, and where to, so that no copy waits for memory. */
static void fetch(const tm_change *changes, size_t count)
{
    enum { LINE = 64 };
    for (size_t i = 0; i < count; i++)
        for (size_t row = 0; row < changes[i].rows; row++)
            for (size_t k = 0; k < changes[i].width; k += LINE) {
                (void)*(const volatile char *)(changes[i].to + row * changes[i].stride + k);
                (void)*(const volatile char *)(changes[i].from + row * changes[i].width + k);
            }
}

int64_t tm_clock_sample_around(
    tm_call *const *calls, size_t count, size_t first, int64_t warm, int64_t n, int64_t before,
    const tm_change *changes, size_t change_count)
{
    int64_t taken = 0;
    fetch(changes, change_count);
    if (warm)
        tm_clock_sample(calls, count, first, warm);
    first = (first + (size_t)warm) % count;
    if (before)
        taken = tm_clock_sample(calls, count, first, before);
    for (size_t i = 0; i < change_count; i++)
        for (size_t row = 0; row < changes[i].rows; row++)
            memcpy(changes[i].to + row * changes[i].stride, changes[i].from + row * changes[i].width, changes[i].width);
    if (before < n)
        taken += tm_clock_sample(calls, count, (first + (size_t)before) % count, n - before);
    return taken;
}
