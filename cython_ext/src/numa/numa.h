/* Where pages lie among the nodes of a NUMA machine, and where they should lie: Linux's system calls, without a
 * library. */
#ifndef TM_NUMA_H
#define TM_NUMA_H

#include <stddef.h>
#include <stdint.h>

/* How the pages of a range are spread over nodes: mbind(2). */
enum { TM_NUMA_PREFER, TM_NUMA_INTERLEAVE };

/* Most nodes that Linux can be built for. */
enum { TM_NUMA_MOST = 1024 };

/* Places the pages of a range on `nodes`, also those that exist already. `begin` is page-aligned. If the nodes are
 * full, others are used, so check afterwards. Returns 0, or the errno: ENOSYS (a kernel without NUMA), EPERM
 * (forbidden, as in many containers), EINVAL (a node that does not exist, or not for this process). */
int tm_numa_bind(void *begin, size_t nbytes, int policy, const int32_t *nodes, size_t count);

/* Counts the pages of a range by node, and those never touched as `absent`. Returns 0, or the errno as above. */
int tm_numa_pages(const void *begin, size_t nbytes, int64_t counts[TM_NUMA_MOST], int64_t *absent);

/* The policy of the calling thread: an MPOL_ constant of linux/mempolicy.h; 0: each page goes to the node of the core
 * that touches it first. Returns 0, or the errno. */
int tm_numa_policy(int *policy);

#endif
