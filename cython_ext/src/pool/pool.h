/* The pool of threads that all kernels of a process share; parallel.h calls it. */
#ifndef TM_POOL_H
#define TM_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef void (*tm_body)(void *args, size_t begin, size_t end);

/* See tm_parallel in parallel.h. `threads` is at least 2. */
typedef int32_t (*tm_pool)(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args);

int32_t tm_pool_run(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args);

/* The most threads of a call, its caller included: the value that was set, at least 1. threadpoolctl reads these
 * names. */
int32_t tritmark_pool_get_threads(void);
void tritmark_pool_set_threads(int32_t most);

/* Threads of the pool, waiting or working: none before the first call that is shared out. */
int32_t tm_pool_workers(void);

/* Counts of calls while tm_pool_watch is on; nanoseconds of processor time, summed over the calls. */
typedef struct tm_pool_seen {
    int64_t calls;     /* that asked for more than one thread */
    int64_t busy_ns;   /* of all threads in their work, without waiting */
    int64_t caller_ns; /* of the callers from begin to end of a call, waiting included */
    int64_t shared; /* calls with several threads; the mean and the most of their threads: */
    int64_t mean_ns, most_ns;
    int64_t team; /* calls that went to another library's threads; see tm_pool_team */
} tm_pool_seen;

/* Starts counting from 0, or stops. A counted call takes up to a microsecond longer. Calls that run at a start or stop
 * are counted or not. */
void tm_pool_watch(int32_t on);
tm_pool_seen tm_pool_saw(void);

/* The cores of the process, `count` numbers, for calls from threads that OpenMP has bound to one. */
void tm_pool_cores(const int32_t *cores, size_t count);

/* On a machine with several NUMA nodes: the node of each core, counted from 0 in order, or -1, and the first of the
 * cores that share its physical core. Call it before the first call; with no or one node it does nothing. At most 64
 * nodes have cores. */
void tm_pool_nodes(const int32_t *node, const int32_t *first, size_t count);

/* How a call of `threads` from a core of node `at` (-1: none) would be shared out over the cores of tm_pool_cores: node
 * n has the shares from begin[n] to begin[n + 1]. Returns the number of nodes; 0: none was set. */
int32_t tm_pool_shares(int32_t threads, int32_t at, uint32_t begin[]);

/* The OpenMP threads of another library, for calls while these run (see team.h): its GOMP_parallel, the size of the
 * calling thread's team, and omp_get_thread_num. A `fork` of NULL turns it off; so does fork(), because the child has
 * no such threads. */
typedef void (*tm_fork)(void (*body)(void *), void *of, unsigned threads, unsigned flags);
typedef int (*tm_number)(void);
void tm_pool_team(tm_fork fork, tm_number size, tm_number number);

#endif
