/* A pool of threads that costs less than 1 us a call while it is hot, and waits for no thread that has not begun.
 *
 * Shares: a call is cut into one share for each thread. A thread takes pieces from the front of its own share, each
 * half of the rest, then pieces from the back of the others'. The caller takes back what workers have not begun.
 *
 * Workers: one word is FREE, CLAIMED by a caller that is about to give a job, a job, or TAKEN. Callers claim workers
 * and take jobs back by compare-and-swap, so several may call at once. Threads in jobs never exceed the cores allowed.
 *
 * Waiting: workers spin for SPIN_NS, less if that was in vain before, then sleep on a futex. After KEEP_NS they offer
 * their core (sched_yield) every LOOK_NS. If another thread took it, they sleep instead for CROWDED waits. Before a
 * caller sleeps, a worker that has begun and lost its core continues on the caller's (bring_still).
 *
 * NUMA: each worker stays on the cores of one node, and the shares of a node follow each other, so a range of items is
 * the same node's in every call. Small calls stay on the caller's node (cores.c).
 *
 * Limit: clocks are read only while tm_pool_watch is on. While PyTorch's OpenMP threads spin, they run the call
 * (team.h). After fork() the child's pool is empty. At exit workers are detached and own only their stacks.
 *
 * Cost: `python suites/performance/fork_join.py`. Reasons, versions and what lost: docs/kernels/pool.md. */
#define _GNU_SOURCE
#include "pool.h"
#include "cores.h"
#include "team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum {
    MOST = 256,        /* threads of one call */
    LINE = 128,        /* bytes that two cores must not share: two cache lines, which are prefetched together */
    SPIN_NS = 200000,  /* at most, for a worker without work; for a caller whose workers still run */
    LEAST_NS = 5000,   /* at least, for a worker that spun in vain */
    WAKE_NS = 60000,   /* time on one thread above which waking another pays */
    KEEP_NS = 50000,   /* time for which a waiting worker keeps its core */
    LOOK_NS = 5000,    /* between two offers of the core to others */
    LOST_NS = 50000,   /* duration of an offer in which another thread took the core */
    CROWDED = 64,      /* waits without an offer, for a worker whose core was taken */
    STILL_NS = 50000,  /* a worker whose processor time stands still for this long has no core */
    PIECES = 8,        /* a piece is at least its share divided by this, and a grain divided by CUTS */
    CUTS = 4,
    SLICE_NS = 100000, /* the shortest slice that Linux allows */
};

/* A share in chunks: its begin and end in one word, so that both change at once. */
typedef struct share {
    _Alignas(LINE) _Atomic uint64_t range;
    int64_t busy_ns; /* of the thread with this share, if the job is watched; 0: it did not take part */
} share;

/* A thread's share of a job; the shares [low, high) of threads of the same node; and the node. All shares and -1
 * without several nodes. */
typedef struct seat {
    uint32_t share, low, high;
    int32_t node;
} seat;

typedef struct job {
    tm_body body;
    void *args;
    size_t items, chunk; /* items in a chunk */
    uint32_t least;      /* chunks in a piece, except the last */
    uint32_t shares;
    int32_t watched;
    uint32_t control; /* the caller's floating-point control: rounding, denormals */
    const tm_mask *cores;
    _Alignas(LINE) _Atomic uint32_t pending; /* workers that have the job; SLEEPS if the caller sleeps on it */
    _Atomic int32_t took_part;
    share share[MOST];
} job;

#define SLEEPS 0x80000000u
enum { FREE, CLAIMED, TAKEN, JOBS }; /* no address of a job is below JOBS */

typedef struct worker {
    _Alignas(LINE) _Atomic uintptr_t word;
    _Atomic uint32_t asleep;
    seat seat;
    _Atomic int32_t node; /* on which it ran last, with several nodes */
    int32_t apart;        /* the core to avoid, or -1 */
    uint64_t cores;       /* its cores, as an id from `place`, once a job has set them */
    int32_t home, away; /* the core on which its last job began; whether it ended elsewhere, see bring_still */
    _Atomic int32_t brought; /* whether a caller moved it to the caller's core */
    _Atomic pid_t thread;
    clockid_t clock; /* of its processor time */
} worker;

static worker workers[MOST];
static _Atomic int32_t made; /* their number */
static _Atomic int32_t busy; /* threads in jobs */
static _Atomic int64_t found_asleep; /* when a call last found a worker asleep */
static _Atomic int32_t set = MOST; /* tritmark_pool_set_threads */
static atomic_flag making = ATOMIC_FLAG_INIT;
static _Atomic int32_t watching; /* tm_pool_watch; what was counted since: */
static _Atomic int64_t seen_calls, seen_busy, seen_caller, seen_shared, seen_mean, seen_most, seen_team;
static _Thread_local int inside; /* whether this thread is in a job */
static int64_t now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* For `most` nanoseconds at most; 0: without limit. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t most)
{
    const struct timespec limit = {.tv_nsec = most};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most ? &limit : NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

#if defined(__x86_64__)
static void pause_(void) { _mm_pause(); }
static uint32_t control_now(void) { return _mm_getcsr() & ~(uint32_t)_MM_EXCEPT_MASK; }
static void control_as(uint32_t control)
{
    if (control_now() != control)
        _mm_setcsr(control);
}
#else
static void pause_(void) { atomic_signal_fence(memory_order_seq_cst); }
static uint32_t control_now(void) { return 0; }
static void control_as(uint32_t control) { (void)control; }
#endif

/* Waits for `most` nanoseconds: `turn` returns 0 after that, or once another thread took this core. If it `offers`, it
 * offers its core after KEEP_NS. */
typedef struct spin {
    int64_t most, begun, seen, offered;
    uint32_t turns;
    int offers, lost;
} spin;

static int turn(spin *s)
{
    pause_();
    if (++s->turns % 64)
        return 1;
    int64_t at = now(CLOCK_MONOTONIC);
    if (!s->begun)
        s->begun = s->seen = s->offered = at;
    if (s->offers && at - s->begun >= KEEP_NS && at - s->offered >= LOOK_NS) {
        sched_yield();
        s->offered = at = now(CLOCK_MONOTONIC);
    }
    s->lost = at - s->seen > LOST_NS;
    s->seen = at;
    return !s->lost && at - s->begun <= s->most;
}

/* Takes a piece of a share, from its front or back: `part` of the rest, at least `least`. Returns its length, 0 if
 * nothing is left. */
static uint32_t piece(share *s, uint32_t part, uint32_t least, int back, uint32_t *begin)
{
    uint64_t found = atomic_load_explicit(&s->range, memory_order_relaxed), next;
    uint32_t first, end, count;
    do {
        first = (uint32_t)found, end = (uint32_t)(found >> 32);
        if (first == end)
            return 0;
        count = (end - first) / part;
        count = count < least ? least : count;
        count = count > end - first ? end - first : count;
        next = back ? (uint64_t)(end - count) << 32 | first : (uint64_t)end << 32 | (first + count);
    } while (
        !atomic_compare_exchange_weak_explicit(&s->range, &found, next, memory_order_relaxed, memory_order_relaxed));
    *begin = back ? end - count : first;
    return count;
}

static void run_piece(const job *j, uint32_t begin, uint32_t count)
{
    size_t end = ((size_t)begin + count) * j->chunk;
    j->body(j->args, begin * j->chunk, end < j->items ? end : j->items);
}

/* Runs a job's work on the thread of that seat. `done`: whether it has done some of it before. */
static void work(job *j, const seat *own, int done)
{
    const uint32_t near = own->high - own->low;
    uint32_t begin, count;
    const int64_t at = j->watched ? now(CLOCK_THREAD_CPUTIME_ID) : 0;
    while ((count = piece(&j->share[own->share], 2, j->least, 0, &begin))) {
        run_piece(j, begin, count);
        done = 1;
    }
    for (uint32_t nth = 1; nth < j->shares; nth++) {
        const uint32_t other =
            nth < near ? own->low + (own->share - own->low + nth) % near : (own->high + nth - near) % j->shares;
        share *victim = &j->share[other];
        while ((count = piece(victim, j->shares, j->least, 1, &begin))) {
            run_piece(j, begin, count);
            done = 1;
        }
    }
    if (done) {
        atomic_fetch_add_explicit(&j->took_part, 1, memory_order_relaxed);
        if (j->watched)
            j->share[own->share].busy_ns += now(CLOCK_THREAD_CPUTIME_ID) - at;
    }
}

/* The id for a worker's `cores`: those of a mask that are a node's; for node -1, all of the mask. */
static uint64_t place(const tm_mask *cores, int32_t node) { return cores->id + 2 * ((uint64_t)(uint32_t)node + 1); }

/* Linux 6.12 runs a waking thread before one with longer slices. Without it, a worker whose core another library's
 * thread spins on starts after the rest of that thread's slice of some milliseconds. Its share of the time is the same.
 * Older kernels ignore the field. */
static void short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes;
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) || attributes.policy != SCHED_OTHER)
        return;
    attributes.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* A worker's wait. It offers its core unless another thread probably wants it. */
static spin wait_for(int64_t most, int crowded)
{
    return (spin){.most = crowded && most > KEEP_NS ? KEEP_NS : most, .offers = !crowded};
}

/* Moves the calling worker to the cores of its seat. */
static void run_on(worker *w, const tm_mask *cores)
{
    tm_cores_keep(0, cores, w->seat.node, -1);
    w->cores = place(cores, w->seat.node);
    w->apart = -1;
}

static void *worker_main(void *of)
{
    worker *w = of;
    short_slices();
    pthread_getcpuclockid(pthread_self(), &w->clock);
    atomic_store(&w->thread, (pid_t)syscall(SYS_gettid));
    inside = 1;
    int64_t most = SPIN_NS;
    int crowded = 0; /* further waits during which another thread probably wants this core */
    int guest = 0; /* whether it runs on its caller's core: then spinning is useless */
    for (;;) {
        spin waiting = wait_for(most, crowded);
        crowded -= crowded > 0;
        uintptr_t word;
        while ((word = atomic_load_explicit(&w->word, memory_order_relaxed)) < JOBS) {
            if (!guest && turn(&waiting))
                continue;
            guest = 0;
            if (waiting.lost)
                crowded = CROWDED;
            atomic_store(&w->asleep, 1);
            while (atomic_load(&w->word) < JOBS && atomic_load(&w->asleep))
                sleep_on(&w->asleep, 1, 0);
            atomic_store(&w->asleep, 0);
            /* Spinning in vain uses up the time that the scheduler grants this thread, so spin less next time. */
            const int near = !waiting.lost && now(CLOCK_MONOTONIC) - waiting.begun < SPIN_NS;
            most = near ? SPIN_NS : most / 2 > LEAST_NS ? most / 2 : LEAST_NS;
            waiting = wait_for(most, crowded);
        }
        most = 2 * most < SPIN_NS ? 2 * most : SPIN_NS;
        if (!atomic_compare_exchange_strong(&w->word, &word, TAKEN))
            continue; /* taken back */
        job *j = (job *)word;
        const int elsewhere = place(j->cores, w->seat.node) != w->cores && j->cores->id;
        if (atomic_exchange(&w->brought, 0) || elsewhere) /* moved just when it had ended its last job */
            run_on(w, j->cores);
        w->home = sched_getcpu();
        control_as(j->control);
        work(j, &w->seat, 0);
        guest = atomic_exchange(&w->brought, 0);
        if (guest) {
            run_on(w, j->cores);
            w->away = 1;
        }
        atomic_store_explicit(&w->word, FREE, memory_order_release);
        /* The last access to the job: its caller may go on, and the futex uses the address only as a name. */
        _Atomic uint32_t *pending = &j->pending;
        if (atomic_fetch_sub(pending, 1) == (SLEEPS | 1))
            wake(pending);
    }
    return NULL;
}

static void child(void)
{
    memset(workers, 0, sizeof workers);
    atomic_store(&made, 0);
    atomic_store(&busy, 0);
    atomic_flag_clear(&making);
    tm_pool_team(NULL, NULL, NULL);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, child); }

/* Makes `count` workers, or as many as the system allows. If another thread is making some, that is enough. */
static void make(int32_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (atomic_flag_test_and_set_explicit(&making, memory_order_acquire))
        return;
    sigset_t all, before;
    pthread_attr_t detached;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by other threads */
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int32_t nth = atomic_load(&made); nth < count; nth++) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, worker_main, &workers[nth]))
            break;
        atomic_store(&made, nth + 1);
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_flag_clear_explicit(&making, memory_order_release);
}

/* Claims up to `count` free workers, in addition to `found`, and returns their numbers. With a node: only those that
 * ran there last. */
static int32_t claim(int32_t count, int32_t *claimed, int32_t found, int32_t node)
{
    int32_t there = atomic_load_explicit(&made, memory_order_acquire);
    for (int32_t nth = 0; nth < there && found < count; nth++) {
        uintptr_t word = FREE;
        if (node >= 0 && atomic_load_explicit(&workers[nth].node, memory_order_relaxed) != node)
            continue;
        if (atomic_compare_exchange_strong_explicit(
                &workers[nth].word, &word, CLAIMED, memory_order_acquire, memory_order_relaxed))
            claimed[found++] = nth;
    }
    return found;
}

/* Makes a sleeping worker wake on another core than this one: Linux may put both on one, which they would share. */
static void keep_apart(worker *w, const tm_mask *cores, int32_t node)
{
    const int32_t here_now = sched_getcpu();
    const int32_t core = node >= 0 && tm_cores_node(here_now) != node ? -1 : here_now;
    const pid_t thread = atomic_load(&w->thread);
    if (!thread || !cores->id)
        return;
    if (w->away) { /* back where it was: Linux might put it beside another one */
        w->away = 0;
        const int32_t home = w->home;
        const int fits = home >= 0 && home != here_now && CPU_ISSET((size_t)home, &cores->cores) &&
                         (node < 0 || tm_cores_node(home) == node);
        if (fits && tm_cores_pin(thread, home) == 0) {
            w->cores = 0; /* any of its seat's cores when it begins */
            return;
        }
    }
    if (!atomic_exchange(&w->brought, 0) && w->apart == core && w->cores == place(cores, node))
        return;
    if (tm_cores_keep(thread, cores, node, core) == 0) {
        w->apart = core;
        w->cores = place(cores, node);
    }
}

/* The seat lies on the line that the worker reads, so it is written together with the word. */
static void offer(job *j, worker *w, const seat *given)
{
    w->seat = *given;
    atomic_store(&w->word, (uintptr_t)j);
    if (atomic_load(&w->asleep) && atomic_exchange(&w->asleep, 0))
        wake(&w->asleep);
}

/* Waking takes the caller some microseconds. It pays for calls that take longer (the first chunk is timed) and for
 * calls that follow each other closely. Otherwise the others do the sleepers' shares. */
static void offer_sleepers(job *j, const seat *own, const int32_t *sleepers, const seat *seats, int32_t count)
{
    uint32_t begin;
    const int64_t at = now(CLOCK_MONOTONIC), before = atomic_exchange(&found_asleep, at);
    if (piece(&j->share[own->share], UINT32_MAX, 1, 0, &begin)) {
        const int64_t busy_from = j->watched ? now(CLOCK_THREAD_CPUTIME_ID) : 0;
        run_piece(j, begin, 1);
        if (j->watched)
            j->share[own->share].busy_ns += now(CLOCK_THREAD_CPUTIME_ID) - busy_from;
    }
    const int64_t chunk_ns = now(CLOCK_MONOTONIC) - at, chunks = (int64_t)(j->items / j->chunk);
    const int pays = at - before < SPIN_NS || chunk_ns > WAKE_NS || chunk_ns * chunks > WAKE_NS;
    for (int32_t nth = 0; nth < count; nth++) {
        worker *w = &workers[sleepers[nth]];
        if (pays) {
            keep_apart(w, j->cores, seats[nth].node);
            offer(j, w, &seats[nth]);
        } else {
            atomic_store_explicit(&w->word, FREE, memory_order_release);
            atomic_fetch_sub(&j->pending, 1);
        }
    }
}

/* A seat for each claimed worker, if possible on the node on which it ran last. Returns the caller's. */
static seat seat_by_node(const tm_mask *cores, const int32_t *claimed, int32_t count, int32_t at, seat *seats)
{
    uint32_t begin[TM_NODES + 1], next[TM_NODES];
    int32_t rest[MOST], left = 0;
    const int32_t nodes = tm_cores_share(cores, count + 1, at, begin);
    memcpy(next, begin, sizeof next);
    if (at < 0 || begin[at] == begin[at + 1])
        for (at = 0; begin[at] == begin[at + 1]; at++)
            ;
    const seat own = {next[at]++, begin[at], begin[at + 1], at};
    for (int32_t nth = 0; nth < count; nth++) {
        const int32_t node = atomic_load_explicit(&workers[claimed[nth]].node, memory_order_relaxed);
        if (next[node] < begin[node + 1])
            seats[nth] = (seat){next[node]++, begin[node], begin[node + 1], node};
        else
            rest[left++] = nth;
    }
    for (int32_t node = 0; node < nodes; node++)
        while (next[node] < begin[node + 1]) {
            const int32_t nth = rest[--left];
            seats[nth] = (seat){next[node]++, begin[node], begin[node + 1], node};
            atomic_store_explicit(&workers[claimed[nth]].node, node, memory_order_relaxed);
        }
    return own;
}

/* Moves a worker that has begun and has no core (its processor time stands still) to this thread's core, which this
 * thread is about to leave. Linux gave the worker's core to another thread for the rest of a tick, and keep_apart keeps
 * it off this one. It goes back when it is done. One at a time: several would share this core. Returns whether there is
 * one. */
static int bring_still(const job *j, const int32_t *claimed, int32_t count, int64_t *ran)
{
    worker *still = NULL;
    for (int32_t nth = 0; nth < count; nth++) {
        worker *w = &workers[claimed[nth]];
        if (atomic_load(&w->word) != TAKEN)
            continue;
        if (atomic_load(&w->brought))
            return 1;
        const int64_t before = ran[nth];
        ran[nth] = now(w->clock);
        if (!still && ran[nth] == before)
            still = w;
    }
    if (!still || !j->cores->id)
        return 0;
    const pid_t thread = atomic_load(&still->thread);
    atomic_store(&still->brought, 1); /* set before the move: the worker may end here before this thread goes on */
    if (tm_cores_pin(thread, sched_getcpu())) {
        atomic_store(&still->brought, 0);
        return 0;
    }
    if (!atomic_load(&still->brought)) /* the worker may have continued on its own core before it was moved */
        tm_cores_keep(thread, j->cores, tm_cores_nodes() ? atomic_load(&still->node) : -1, -1);
    return 1;
}

/* Waits until the workers that have begun are done. */
static void wait_for_workers(job *j, const int32_t *claimed, int32_t count)
{
    int64_t ran[MOST];
    for (int32_t nth = 0; nth < count; nth++)
        ran[nth] = -1;
    uint32_t left = atomic_load_explicit(&j->pending, memory_order_acquire);
    for (int64_t waited = 0; left & ~SLEEPS; waited += STILL_NS) {
        spin waiting = {.most = STILL_NS};
        while (waited < SPIN_NS && left && turn(&waiting))
            left = atomic_load_explicit(&j->pending, memory_order_acquire);
        if (!left)
            return;
        if (bring_still(j, claimed, count, ran))
            waited = SPIN_NS;
        if (waited < SPIN_NS)
            continue;
        left = atomic_fetch_or(&j->pending, SLEEPS) | SLEEPS;
        if (left & ~SLEEPS)
            sleep_on(&j->pending, left, SPIN_NS);
        left = atomic_load(&j->pending);
    }
}

/* Offers the job to the claimed workers, works, takes back what was not begun, and waits for the rest. */
static int32_t share_out(job *j, const int32_t *claimed, int32_t count, int32_t at)
{
    int32_t sleepers[MOST], asleep = 0;
    seat by_node[MOST], theirs[MOST], own = {0, 0, j->shares, -1};
    const int several = tm_cores_nodes() && j->cores->id;
    if (several)
        own = seat_by_node(j->cores, claimed, count, at, by_node);
    atomic_store_explicit(&j->pending, (uint32_t)count, memory_order_relaxed);
    for (int32_t nth = 0; nth < count; nth++) {
        const seat given = several ? by_node[nth] : (seat){(uint32_t)nth + 1, 0, j->shares, -1};
        worker *w = &workers[claimed[nth]];
        if (atomic_load_explicit(&w->asleep, memory_order_relaxed))
            sleepers[asleep] = claimed[nth], theirs[asleep++] = given;
        else
            offer(j, w, &given);
    }
    if (asleep)
        offer_sleepers(j, &own, sleepers, theirs, asleep);
    work(j, &own, asleep != 0);
    uint32_t back = 0;
    for (int32_t nth = 0; nth < count; nth++) {
        uintptr_t word = (uintptr_t)j;
        back += atomic_compare_exchange_strong(&workers[claimed[nth]].word, &word, FREE);
    }
    if (atomic_fetch_sub_explicit(&j->pending, back, memory_order_acquire) != back)
        wait_for_workers(j, claimed, count);
    return atomic_load_explicit(&j->took_part, memory_order_relaxed);
}

/* Adds a call to the counts: the processor time of its threads, and of its caller from `caller_from`, waiting
 * included. */
static __attribute__((noinline, cold)) void see(const share *shares, uint32_t count, int64_t caller_from)
{
    int64_t sum = 0, most = 0, took_part = 0;
    for (uint32_t s = 0; s < count; s++) {
        const int64_t ns = shares[s].busy_ns;
        sum += ns, most = ns > most ? ns : most, took_part += ns > 0;
    }
    atomic_fetch_add(&seen_calls, 1);
    atomic_fetch_add(&seen_busy, sum);
    if (took_part > 1) {
        atomic_fetch_add(&seen_shared, 1);
        atomic_fetch_add(&seen_mean, sum / took_part);
        atomic_fetch_add(&seen_most, most);
    }
    atomic_fetch_add(&seen_caller, now(CLOCK_THREAD_CPUTIME_ID) - caller_from);
}

static __attribute__((noinline, cold)) void see_alone(size_t items, tm_body body, void *args, int64_t caller_from)
{
    const int64_t at = now(CLOCK_THREAD_CPUTIME_ID);
    body(args, 0, items);
    const share alone = {.busy_ns = now(CLOCK_THREAD_CPUTIME_ID) - at};
    see(&alone, 1, caller_from);
}

/* Thread n of another library's team does its part of a job, with the caller's floating-point control meanwhile. */
static void as_member(void *of, int32_t n)
{
    job *j = of;
    const uint32_t control = control_now();
    const int outer = inside;
    inside = 1;
    control_as(j->control);
    work(j, &(seat){(uint32_t)n, 0, j->shares, -1}, 0);
    control_as(control);
    inside = outer;
}

int32_t tm_pool_run(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args)
{
    if (inside) {
        body(args, 0, items);
        return 1;
    }
    const int32_t watched = atomic_load_explicit(&watching, memory_order_relaxed);
    const int64_t from = watched ? now(CLOCK_THREAD_CPUTIME_ID) : 0;
    const tm_mask *cores = tm_cores_allowed();
    int32_t most = atomic_load_explicit(&set, memory_order_relaxed), claimed[MOST], count = 0, at = -1, team = 0;
    most = most < cores->count ? most : cores->count;
    int32_t room = most - atomic_fetch_add_explicit(&busy, 1, memory_order_relaxed) - 1;
    room = room < threads - 1 ? room : threads - 1;
    if (room > 0 && !tm_cores_nodes())
        team = tm_team_runs();
    if (team > 1) {
        count = team - 1 < room ? team - 1 : room;
    } else if (room > 0) {
        if (atomic_load_explicit(&made, memory_order_relaxed) < room)
            make(room);
        at = tm_cores_node_here();
        if (at >= 0 && cores->id && room < tm_cores_physical(cores, at))
            count = claim(room, claimed, 0, at);
        count = claim(room, claimed, count, -1);
    }
    int32_t used = 1;
    inside = 1;
    if (!count) {
        if (watched)
            see_alone(items, body, args, from);
        else
            body(args, 0, items);
    } else {
        atomic_fetch_add_explicit(&busy, count, memory_order_relaxed);
        job j;
        size_t units = grain / CUTS / unit, most_chunks = UINT32_MAX;
        j.chunk = (units ? units : 1) * unit;
        if (items / j.chunk >= most_chunks)
            j.chunk = (items / most_chunks / unit + 1) * unit;
        const uint64_t chunks = (items + j.chunk - 1) / j.chunk, shares = (uint64_t)count + 1;
        j.body = body, j.args = args, j.items = items, j.shares = (uint32_t)shares;
        j.least = (uint32_t)(chunks / shares / PIECES);
        j.least = j.least ? j.least : 1;
        j.control = control_now(), j.cores = cores, j.watched = watched;
        atomic_init(&j.took_part, 0);
        for (uint64_t s = 0; s < shares; s++) {
            uint64_t begin = chunks * s / shares, end = chunks * (s + 1) / shares;
            atomic_init(&j.share[s].range, end << 32 | begin);
            if (watched)
                j.share[s].busy_ns = 0;
        }
        if (team > 1) {
            tm_team_run(as_member, &j, count + 1);
            used = atomic_load_explicit(&j.took_part, memory_order_relaxed);
        } else {
            used = share_out(&j, claimed, count, at);
        }
        if (watched) {
            atomic_fetch_add(&seen_team, team > 1);
            see(j.share, j.shares, from);
        }
    }
    inside = 0;
    atomic_fetch_sub_explicit(&busy, 1 + count, memory_order_relaxed);
    return used;
}

int32_t tritmark_pool_get_threads(void) { return atomic_load(&set); }
void tritmark_pool_set_threads(int32_t most) { atomic_store(&set, most < 1 ? 1 : most > MOST ? MOST : most); }
int32_t tm_pool_workers(void) { return atomic_load(&made); }

void tm_pool_watch(int32_t on)
{
    if (on) {
        atomic_store(&seen_calls, 0), atomic_store(&seen_busy, 0), atomic_store(&seen_caller, 0);
        atomic_store(&seen_shared, 0), atomic_store(&seen_mean, 0), atomic_store(&seen_most, 0);
        atomic_store(&seen_team, 0);
    }
    atomic_store(&watching, on);
}

tm_pool_seen tm_pool_saw(void)
{
    return (tm_pool_seen){
        .calls = atomic_load(&seen_calls),
        .busy_ns = atomic_load(&seen_busy),
        .caller_ns = atomic_load(&seen_caller),
        .shared = atomic_load(&seen_shared),
        .mean_ns = atomic_load(&seen_mean),
        .most_ns = atomic_load(&seen_most),
        .team = atomic_load(&seen_team)};
}
