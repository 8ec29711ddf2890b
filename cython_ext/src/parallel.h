/* The one place that knows OpenMP: split `items` into one contiguous range a thread and run `body` on each. */
#ifndef TM_PARALLEL_H
#define TM_PARALLEL_H

#include "isa.h"

typedef void (*tm_body)(void *args, size_t begin, size_t end);

/* `unit`: ranges start at multiples of it (a SIMD step, a tile). `grain`: items that pay for waking one more thread.
 * Returns how many threads took part. */
static inline int32_t tm_parallel(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args)
{
    size_t most = items / (grain ? grain : 1);
    int32_t count = threads < 1 ? 1 : threads;
    if ((size_t)count > most)
        count = most ? (int32_t)most : 1;
    if (count == 1) {
        body(args, 0, items);
        return 1;
    }
    size_t units = (items + unit - 1) / unit;
#pragma omp parallel for num_threads(count) schedule(static, 1)
    for (int32_t t = 0; t < count; t++) {
        size_t begin = units * (size_t)t / (size_t)count * unit;
        size_t end = units * ((size_t)t + 1) / (size_t)count * unit;
        if (end > items)
            end = items;
        if (begin < end)
            body(args, begin, end);
    }
    return count;
}

#endif
