/* The only way to several threads: splits `items` into ranges and runs `body` on each. */
#ifndef TM_PARALLEL_H
#define TM_PARALLEL_H

#include "isa.h"
#include "pool/pool.h"

/* The pool of the process, for the kernels of one extension module, which finds it at import. */
extern __attribute__((visibility("hidden"))) tm_pool tm_shared_pool;

/* `unit`: ranges start at multiples of it (a SIMD step, a tile). `grain`: items that justify waking one more thread.
 * Each item is in one range. Ranges have any length, and their assignment to threads is not fixed, so a thread may call
 * `body` several times. A call within a body has one thread.
 *
 * Returns the number of threads that took part: at most `threads`, fewer if others were busy or late, or if the process
 * may use fewer cores. */
static inline int32_t tm_parallel(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args)
{
    int32_t count = 1;
    if (threads > 1 && items > 1) { /* else no division, whose time is noticeable in a short call */
        const size_t most = items / (grain ? grain : 1);
        count = (size_t)threads < most ? threads : (int32_t)most;
    }
    if (count <= 1) {
        body(args, 0, items);
        return 1;
    }
    return tm_shared_pool(items, unit, grain, count, body, args);
}

#endif
