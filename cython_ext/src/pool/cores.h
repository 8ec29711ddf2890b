/* Where the pool's threads may run: the cores that a call may use; on a machine with several NUMA nodes the node of
 * each core, and which node has which shares of a call. For pool.c only, which defines _GNU_SOURCE for cpu_set_t. */
#ifndef TM_CORES_H
#define TM_CORES_H

#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

enum { TM_NODES = 64 }; /* most nodes with cores */

typedef struct tm_mask {
    cpu_set_t cores;
    uint64_t id; /* of its bits; 0: unknown */
    int32_t count;
} tm_mask;

/* Every call of the pool uses these, so they are called directly and not through the linker's table. */
#pragma GCC visibility push(hidden)

/* The cores that a call from this thread may use. */
const tm_mask *tm_cores_allowed(void);

/* Keeps a thread (0: this one) on those cores; if `node` is one, on the node's among them; off the core `without` if
 * there is another. Returns 0 on success. */
int tm_cores_keep(pid_t thread, const tm_mask *cores, int32_t node, int32_t without);

/* Keeps a thread on one core. Returns 0 on success. */
int tm_cores_pin(pid_t thread, int core);

/* How many nodes have cores; 0 if there are not several. Then the node of all cores and threads is -1. */
int32_t tm_cores_nodes(void);
int32_t tm_cores_node(int32_t core);
int32_t tm_cores_node_here(void);

/* Physical cores of a mask on a node. */
int32_t tm_cores_physical(const tm_mask *cores, int32_t node);

/* Which shares each node's threads have: those from begin[node] to begin[node + 1]. All are on the caller's node `at`
 * if its physical cores are enough; else each node has its part. Returns tm_cores_nodes(). */
int32_t tm_cores_share(const tm_mask *cores, int32_t shares, int32_t at, uint32_t begin[]);

#pragma GCC visibility pop

#endif
