/* The pool of threads that all kernels of a process share; parallel.h is how they call it. */
#ifndef TM_POOL_H
#define TM_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef void (*tm_body)(void *args, size_t begin, size_t end);

/* See tm_parallel in parallel.h. `threads` is at least 2. */
typedef int32_t (*tm_pool)(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args);

int32_t tm_pool_run(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args);

/* The most threads that a call may have, its caller counted: what was set, at least 1. Seen by threadpoolctl under
 * these names. */
int32_t tritmark_pool_get_threads(void);
void tritmark_pool_set_threads(int32_t most);

/* Threads that wait for work or do some: none before the first call that is shared. */
int32_t tm_pool_workers(void);

/* The cores of the process, as `count` numbers, for calls from threads that OpenMP has bound to one. */
void tm_pool_cores(const int32_t *cores, size_t count);

#endif
