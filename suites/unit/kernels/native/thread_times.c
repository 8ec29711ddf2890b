/* Work of a known length for each item, for test_thread_times.py: shared out by the pool whose address is given. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t (*pool)(
    size_t items, size_t unit, size_t grain, int32_t threads, void (*body)(void *, size_t, size_t), void *args);

static void body(void *args, size_t begin, size_t end)
{
    const int64_t *steps = args;
    for (size_t i = begin; i < end; i++)
        for (volatile int64_t n = 0; n < steps[i]; n++)
            ;
}

int32_t share_out(pool run, int64_t *steps, size_t items, int32_t threads)
{
    return run(items, 1, 1, threads, body, steps);
}
