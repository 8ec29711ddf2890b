#define _GNU_SOURCE
#include "cores.h"
#include "pool.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REFRESH_NS = 10000000 }; /* how long the known affinity of a thread is valid */

/* Physical cores of a mask by node. */
typedef struct counted {
    uint64_t id;    /* of the mask; 0: unknown */
    uint32_t times; /* value of `times` when this was counted */
    int32_t cores[TM_NODES], all;
} counted;

static tm_mask told;                    /* set by tm_pool_cores */
/* set by tm_pool_nodes: how many nodes have cores, 0 if there are not several */
static int32_t nodes;
static uint32_t times;                  /* how often it was set */
static cpu_set_t node_cores[TM_NODES];
static int16_t node_of[CPU_SETSIZE];    /* a core's node, or -1 */
static int16_t first_of[CPU_SETSIZE];   /* the first of the logical cores that share its physical one */
static _Thread_local tm_mask here;      /* this thread's affinity when it was last queried */
static _Thread_local int64_t here_ns;
static _Thread_local counted here_counted;

static void identify(tm_mask *m)
{
    const unsigned char *bytes = (const unsigned char *)&m->cores;
    m->id = 14695981039346656037u;
    for (size_t i = 0; i < sizeof m->cores; i++)
        m->id = (m->id ^ bytes[i]) * 1099511628211u;
    m->id |= 1;
    m->count = CPU_COUNT(&m->cores);
}

const tm_mask *tm_cores_allowed(void)
{
    if (told.id)
        return &told;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (at - here_ns > REFRESH_NS) {
        here_ns = at;
        if (sched_getaffinity(0, sizeof here.cores, &here.cores) == 0) {
            identify(&here);
        } else { /* more cores than a cpu_set_t has */
            here.id = 0;
            here.count = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
        }
    }
    return &here;
}

int tm_cores_keep(pid_t thread, const tm_mask *cores, int32_t node, int32_t without)
{
    cpu_set_t some = cores->cores;
    if (node >= 0)
        CPU_AND(&some, &some, &node_cores[node]);
    if (without >= 0 && !(CPU_COUNT(&some) == 1 && CPU_ISSET((size_t)without, &some)))
        CPU_CLR((size_t)without, &some);
    return sched_setaffinity(thread, sizeof some, &some);
}

int tm_cores_pin(pid_t thread, int core)
{
    if (core < 0 || core >= CPU_SETSIZE)
        return -1;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    return sched_setaffinity(thread, sizeof one, &one);
}

int32_t tm_cores_nodes(void) { return nodes; }

int32_t tm_cores_node(int32_t core) { return nodes && core >= 0 && core < CPU_SETSIZE ? node_of[core] : -1; }

int32_t tm_cores_node_here(void) { return nodes ? tm_cores_node(sched_getcpu()) : -1; }

static const counted *count_cores(const tm_mask *cores)
{
    if (here_counted.id == cores->id && cores->id && here_counted.times == times)
        return &here_counted;
    cpu_set_t seen;
    CPU_ZERO(&seen);
    memset(&here_counted, 0, sizeof here_counted);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &cores->cores) || node_of[core] < 0 || CPU_ISSET((size_t)first_of[core], &seen))
            continue;
        CPU_SET((size_t)first_of[core], &seen);
        here_counted.cores[node_of[core]]++;
        here_counted.all++;
    }
    here_counted.id = cores->id, here_counted.times = times;
    return &here_counted;
}

int32_t tm_cores_physical(const tm_mask *cores, int32_t node) { return count_cores(cores)->cores[node]; }

int32_t tm_cores_share(const tm_mask *cores, int32_t shares, int32_t at, uint32_t begin[])
{
    const counted *there = count_cores(cores);
    const int close = at >= 0 && shares <= there->cores[at];
    int64_t before = 0;
    for (int32_t node = 0; node < nodes; node++) {
        begin[node] = close             ? node > at ? (uint32_t)shares : 0
                      : there->all == 0 ? 0
                                        : (uint32_t)((2 * before * shares + there->all) / (2 * there->all));
        before += there->cores[node];
    }
    begin[nodes] = (uint32_t)shares;
    return nodes;
}

void tm_pool_cores(const int32_t *cores, size_t count)
{
    tm_mask found;
    memset(&found, 0, sizeof found);
    for (size_t i = 0; i < count; i++)
        if (cores[i] >= 0 && cores[i] < CPU_SETSIZE)
            CPU_SET((size_t)cores[i], &found.cores);
    if (count)
        identify(&found);
    told = found;
}

void tm_pool_nodes(const int32_t *node, const int32_t *first, size_t count)
{
    int32_t most = 0;
    nodes = 0;
    memset(node_cores, 0, sizeof node_cores);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        const int known = core < count && node[core] >= 0 && node[core] < TM_NODES;
        node_of[core] = known ? (int16_t)node[core] : -1;
        first_of[core] = known && first[core] >= 0 && first[core] < CPU_SETSIZE ? (int16_t)first[core] : (int16_t)core;
        if (known)
            CPU_SET(core, &node_cores[node[core]]);
        if (known && node[core] >= most)
            most = node[core] + 1;
    }
    nodes = most > 1 ? most : 0;
    times++;
}

int32_t tm_pool_shares(int32_t threads, int32_t at, uint32_t begin[])
{
    if (nodes && told.id && threads > 0 && at < nodes)
        tm_cores_share(&told, threads, at, begin);
    return nodes;
}
