/* Whether the other library's threads run is asked of the system: the processor time of one of them, twice. Where it
 * has not run since the last call, which is the rule where calls come alone, that is one question.
 *
 * `suites/performance/behind_pytorch.py` on 16 hyperthreads of an Intel Xeon with AMX (Linux 6.18), linears 2560 x 2560
 * of 1, 16, 64, 128 and 512 rows: 14, 37, 88, 156 and 565 us one after the other. Each behind torch._int_mm, with the
 * pool's own threads, which share the cores with PyTorch's then: 69, 69, 156, 177, 669 (and up to 1,228 before workers slept
 * where their core is taken); over PyTorch's: 14, 36, 95, 160, 561.
 *
 * OpenMP's end of a call waits for all threads, so where they sleep, or another process has the cores, the pool's own
 * way is the better one: it waits for nobody who has not begun. A team belongs to the thread that began it: the first call
 * of each thread goes to its team, which is how that is known, and makes it where the other library has not yet. To wait
 * until workers come late was tried: beside PyTorch's bound threads they may come in time, and take turns with the caller
 * on one core. A team is never made larger or smaller than the library has it, for which GNU's OpenMP ends threads and
 * makes new ones. */
#include "team.h"
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { ASK_NS = 2000 }; /* after so long a thread whose processor time stands still is asleep */

static _Atomic(tm_fork) fork_;
static _Atomic(tm_number) team_size, own_number;

/* Of the calling thread's team: whether it is known, the second thread's clock of processor time, and where that was. */
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
