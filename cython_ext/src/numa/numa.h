/* Where pages lie among the nodes of a NUMA machine, and where they shall lie: Linux's system calls, which need no
 * library. */
#ifndef TM_NUMA_H
#define TM_NUMA_H

#include <stddef.h>
#include <stdint.h>

/* How pages of a range are to be spread over nodes: mbind(2). */
enum { TM_NUMA_PREFER, TM_NUMA_INTERLEAVE };

/* Nodes that a machine may have: what Linux can be built for, at most. */
enum { TM_NUMA_MOST = 1024 };

/* Have the pages of a range lie on `nodes`, those that are there already too. `begin` is at a page's beginning. Where
 * the nodes are full, others are taken: look afterwards. Returns 0, or the number of the error: ENOSYS (a kernel
 * without NUMA), EPERM (forbidden, as in many containers), EINVAL (a node that is not there, or not for this process).
 */
int tm_numa_bind(void *begin, size_t nbytes, int policy, const int32_t *nodes, size_t count);

/* Count the pages of a range by node. `absent` counts those that were never touched. Returns 0, or the number of the
 * error, as above. */
int tm_numa_pages(const void *begin, size_t nbytes, int64_t counts[TM_NUMA_MOST], int64_t *absent);

/* The policy of the calling thread: one of MPOL_ in linux/mempolicy.h, 0 where each page goes to the node of the core
 * that touches it first. Returns 0, or the number of the error. */
int tm_numa_policy(int *policy);

#endif
