/* Where the pool's threads may run: the cores that a call may use, and on a machine of several NUMA nodes the node of
 * each core, and which shares of a call are which node's. For pool.c alone, which defines _GNU_SOURCE for cpu_set_t. */
#ifndef TM_CORES_H
#define TM_CORES_H

#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

enum { TM_NODES = 64 }; /* that have cores */

typedef struct tm_mask {
    cpu_set_t cores;
    uint64_t id; /* of its bits; 0: nothing is known */
    int32_t count;
} tm_mask;

/* Every call of the pool asks here, so these are called straight and not through the linker's table. */
#pragma GCC visibility push(hidden)

/* The cores that a call from this thread may use. */
const tm_mask *tm_cores_allowed(void);

/* Keep a thread (0: this one) on those cores, of them on the node's where `node` is one, and off the core `without`
 * where there is another. Returns 0 where the system did it. */
int tm_cores_keep(pid_t thread, const tm_mask *cores, int32_t node, int32_t without);

/* Keep a thread on one core. Returns 0 where the system did it. */
int tm_cores_pin(pid_t thread, int core);

/* How many nodes have cores; 0 where there are not several. Then no core and no thread is on one: -1. */
int32_t tm_cores_nodes(void);
int32_t tm_cores_node(int32_t core);
int32_t tm_cores_node_here(void);

/* How many physical cores of a mask a node has. */
int32_t tm_cores_physical(const tm_mask *cores, int32_t node);

/* Which shares each node's threads have: those from begin[node] up to begin[node + 1]. All are on the caller's node
 * `at` where its physical cores are enough; else each node has its part of all. Returns tm_cores_nodes(). */
int32_t tm_cores_share(const tm_mask *cores, int32_t shares, int32_t at, uint32_t begin[]);

#pragma GCC visibility pop

#endif
