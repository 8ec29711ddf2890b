/* Calls of one tree's tm_parallel with bodies of known length, for fork_join.py, which compiles this against each tree.
 */
#include "parallel.h"

#include <time.h>

#ifdef POOL
tm_pool tm_shared_pool = tm_pool_run;
#endif

typedef struct steps {
    int64_t of_item; /* steps of the loop below, about a nanosecond each */
    uint64_t results[64];
} steps;

/* A loop and not a clock: what a thread does without a core does not go on. */
static void body(void *args, size_t begin, size_t end)
{
    steps *s = args;
    for (size_t i = begin; i < end; i++) {
        uint64_t x = i;
        for (int64_t n = 0; n < s->of_item; n++)
            x = (x ^ n) * 6364136223846793005u;
        s->results[i % 64] = x;
    }
}

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Nanoseconds of `calls` calls with `items` items each; threads that took part are added to `used`. */
int64_t fork_join(int64_t calls, int64_t items, int64_t of_item, int32_t threads, int64_t *used)
{
    steps s = {.of_item = of_item};
    const int64_t begin = now();
    for (int64_t call = 0; call < calls; call++)
        *used += tm_parallel((size_t)items, 1, 1, threads, body, &s);
    return now() - begin;
}
