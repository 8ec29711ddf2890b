/* Whether the other library's threads run is measured by the processor time of one of them, read twice; once if it has
 * not run since the last call, the usual case for calls without the other library.
 *
 * OpenMP waits for all threads at the end of a call. So if they sleep, or another process has the cores, the pool's own
 * threads are better. A team belongs to the thread that began it: the first call of each thread uses its team, which
 * makes it known, and creates it if needed. A team keeps the library's size: GNU's OpenMP ends threads and creates new
 * ones for another.
 *
 * Rates: `python suites/performance/behind_pytorch.py`. What lost: docs/kernels/pool.md. */
#include "team.h"
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { ASK_NS = 2000 }; /* a thread whose processor time stands still for this long is asleep */

static _Atomic(tm_fork) fork_;
static _Atomic(tm_number) team_size, own_number;

/* The calling thread's team: whether it is known, the second thread's clock of processor time, and its last value. */
static _Thread_local struct {
    int known;
    clockid_t clock;
    int64_t ran_ns;
} mine;

void tm_pool_team(tm_fork fork, tm_number size, tm_number number)
{
    if (fork) {
        atomic_store(&team_size, size);
        atomic_store(&own_number, number);
    }
    atomic_store(&fork_, fork);
}

static int64_t read_ns(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) ? -1 : (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static int second_runs(void)
{
    const int64_t ran = read_ns(mine.clock);
    if (ran < 0)
        mine.known = 0; /* it has ended */
    if (ran < 0 || ran == mine.ran_ns)
        return 0;
    const int64_t at = read_ns(CLOCK_MONOTONIC);
    do
        mine.ran_ns = read_ns(mine.clock);
    while (mine.ran_ns == ran && read_ns(CLOCK_MONOTONIC) - at < ASK_NS);
    return mine.ran_ns > ran;
}

int32_t tm_team_runs(void)
{
    if (!atomic_load_explicit(&fork_, memory_order_relaxed) || (mine.known && !second_runs()))
        return 0;
    return atomic_load(&team_size)();
}

typedef struct run {
    void (*body)(void *of, int32_t n);
    void *of;
    int32_t threads;
    _Atomic int32_t known;
    clockid_t clock;
} run;

static void member(void *of)
{
    run *r = of;
    const int32_t n = atomic_load_explicit(&own_number, memory_order_relaxed)();
    if (n == 1)
        atomic_store(&r->known, !pthread_getcpuclockid(pthread_self(), &r->clock));
    if (n < r->threads)
        r->body(r->of, n);
}

void tm_team_run(void (*body)(void *of, int32_t n), void *of, int32_t threads)
{
    run r = {.body = body, .of = of, .threads = threads};
    const tm_fork fork = atomic_load(&fork_);
    if (fork)
        fork(member, &r, (unsigned)atomic_load(&team_size)(), 0);
    else
        body(of, 0);
    mine.known = atomic_load(&r.known);
    mine.clock = r.clock;
    mine.ran_ns = -1;
}
