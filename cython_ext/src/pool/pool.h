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

/* What threads did in calls while somebody watched: nanoseconds of processor time, summed over the calls. */
typedef struct tm_pool_seen {
    int64_t calls;     /* that asked for more than one thread */
    int64_t busy_ns;   /* of all threads in their work; waiting is none */
    int64_t caller_ns; /* of the callers from the beginning of a call to its end, waiting included */
    int64_t shared; /* calls in which several threads took part; of these the mean and the most of their threads: */
    int64_t mean_ns, most_ns;
    int64_t team; /* calls that went to another library's threads; see tm_pool_team */
} tm_pool_seen;

/* Begin to watch, which forgets what was seen, or end it. What is watched takes up to a microsecond longer. Calls that
 * are going on when it begins or ends count or do not. */
void tm_pool_watch(int32_t on);
tm_pool_seen tm_pool_saw(void);

/* The cores of the process, as `count` numbers, for calls from threads that OpenMP has bound to one. */
void tm_pool_cores(const int32_t *cores, size_t count);

/* On a machine of several NUMA nodes: for each core its node, counted from 0 in the order of their numbers, or -1, and
 * the first of the cores that share its physical one. Before the first call; none (or one node) where it does not
 * matter. At most 64 nodes have cores. */
void tm_pool_nodes(const int32_t *node, const int32_t *first, size_t count);

/* How a call of `threads` from a core of node `at` (-1: none) would be shared out over the cores of tm_pool_cores:
 * node n has the shares from begin[n] up to begin[n + 1]. Returns how many nodes there are; 0: nothing was told. */
int32_t tm_pool_shares(int32_t threads, int32_t at, uint32_t begin[]);

/* Threads that another library's OpenMP has, for calls while these run (see team.h): its GOMP_parallel, how many a team
 * of the calling thread has, and omp_get_thread_num. From a `fork` of NULL on nothing of that is done, and in a child of
 * fork(), where these threads do not exist. */
typedef void (*tm_fork)(void (*body)(void *), void *of, unsigned threads, unsigned flags);
typedef int (*tm_number)(void);
void tm_pool_team(tm_fork fork, tm_number size, tm_number number);

#endif
