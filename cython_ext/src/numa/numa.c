#define _GNU_SOURCE
#include "numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORD = 8 * sizeof(unsigned long), AT_ONCE = 1024 };

int tm_numa_bind(void *begin, size_t nbytes, int policy, const int32_t *nodes, size_t count)
{
    unsigned long mask[TM_NUMA_MOST / WORD] = {0};
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] < 0 || nodes[i] >= TM_NUMA_MOST)
            return EINVAL;
        mask[(size_t)nodes[i] / WORD] |= 1ul << ((size_t)nodes[i] % WORD);
    }
    const int mode = policy == TM_NUMA_INTERLEAVE ? MPOL_INTERLEAVE : MPOL_PREFERRED;
    /* Linux uses one bit less than the given number. */
    return syscall(SYS_mbind, begin, nbytes, mode, mask, (unsigned long)TM_NUMA_MOST + 1, MPOL_MF_MOVE) ? errno : 0;
}

int tm_numa_pages(const void *begin, size_t nbytes, int64_t counts[TM_NUMA_MOST], int64_t *absent)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t end = (uintptr_t)begin + nbytes;
    const void *pages[AT_ONCE];
    int where[AT_ONCE];
    memset(counts, 0, TM_NUMA_MOST * sizeof *counts);
    *absent = 0;
    for (uintptr_t at = (uintptr_t)begin / page * page; at < end;) {
        size_t some = 0;
        for (; some < AT_ONCE && at < end; at += page)
            pages[some++] = (const void *)at;
        if (syscall(SYS_move_pages, 0, some, pages, NULL, where, 0))
            return errno;
        for (size_t i = 0; i < some; i++) {
            if (where[i] >= 0 && where[i] < TM_NUMA_MOST)
                counts[where[i]]++;
            else if (where[i] == -ENOENT || where[i] == -EFAULT) /* never touched, or the zero page */
                ++*absent;
            else
                return where[i] < 0 ? -where[i] : EINVAL;
        }
    }
    return 0;
}

int tm_numa_policy(int *policy) { return syscall(SYS_get_mempolicy, policy, NULL, 0, NULL, 0) ? errno : 0; }
