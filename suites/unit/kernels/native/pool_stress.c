/* The pool, called in every way that it allows; test_pool.py compiles it beside pool.c, under ThreadSanitizer,
 * AddressSanitizer and neither, and with each planted fault. Exit status 0: every item was done once, by no more
 * threads than allowed. */
#define _GNU_SOURCE
#include "pool/pool.h"
#include "stress.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS = 1000, CALLERS = 3, CORES = 8 };

typedef struct counted {
    uint8_t done[ITEMS]; /* plain: two threads that do one item are a race, for ThreadSanitizer too */
    size_t unit, items;
    unsigned rounding;
    _Atomic int32_t wrong, nested;
} counted;

static void count(void *args, size_t begin, size_t end)
{
    counted *c = args;
    if (rounding() != c->rounding)
        atomic_store(&c->wrong, 1);
    if (begin % c->unit || (end % c->unit && end != c->items) || begin >= end || end > c->items)
        atomic_store(&c->wrong, 1);
    for (size_t i = begin; i < end && i < ITEMS; i++)
        c->done[i]++;
}

/* So long that others come to help. */
static void count_slowly(void *args, size_t begin, size_t end)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
    count(args, begin, end);
}

static void check(counted *c, int32_t used, int32_t threads)
{
    if (used < 1 || used > threads)
        fail("more threads than allowed, or none");
    if (atomic_load(&c->wrong))
        fail("a range that is none, or another rounding mode than the caller's");
    for (size_t i = 0; i < ITEMS; i++)
        if (c->done[i] != (i < c->items))
            fail(c->done[i] ? "an item was done twice" : "an item was skipped");
}

static void every_shape(unsigned seed, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        counted c = {.unit = 1 + (size_t)rand_r(&seed) % 70, .items = 1 + (size_t)rand_r(&seed) % ITEMS};
        const int32_t threads = 2 + rand_r(&seed) % 6;
        round_up(rand_r(&seed) % 2);
        c.rounding = rounding();
        if (rand_r(&seed) % 8 == 0)
            nanosleep(&(struct timespec){0, rand_r(&seed) % 600000}, NULL); /* past the workers' spinning */
        check(&c, tm_pool_run(c.items, c.unit, (size_t)rand_r(&seed) % 100, threads, count, &c), threads);
    }
    round_up(0);
}

static void *caller(void *seed)
{
    every_shape((unsigned)(uintptr_t)seed, 2000);
    return NULL;
}

static void within(void *args, size_t begin, size_t end)
{
    counted *c = args;
    count(args, begin, end);
    counted inner = {.unit = 1, .items = ITEMS, .rounding = rounding()};
    check(&inner, tm_pool_run(ITEMS, 1, 1, 4, count_slowly, &inner), 1);
    atomic_fetch_add(&c->nested, 1);
}

/* Workers that sleep are woken for a long call. */
static void asleep(void)
{
    for (int round = 0; round < 50; round++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        counted c = {.unit = 1, .items = ITEMS, .rounding = rounding()};
        const int32_t used = tm_pool_run(ITEMS, 1, 1, 2, count_slowly, &c);
        check(&c, used, 2);
        if (used == 2)
            return;
    }
    fail("nobody wakes");
}

/* In a child of fork: calls go on, with workers of its own. */
static void forked(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        if (tm_pool_workers())
            fail("a child with its parent's workers");
        every_shape(7, 200);
        _exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        fail("the child failed");
}

/* Another library's thread, which keeps one of the two cores busy. */
typedef struct rival {
    int own, taken; /* the caller's core, and the rival's */
    pid_t caller;
    int meets, waits;      /* whether the worker goes to the rival's core; whether the caller waits for it */
    int ended_on, free;    /* the core on which the worker ended its item; whether it might use the rival's before */
    int64_t item_ns;       /* processor time of an item */
} rival;

static void run_on(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        fail("no such core");
}

static int64_t processor_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static void *spin_on(void *core)
{
    run_on(*(int *)core);
    for (;;)
        ;
}

static void item(void *args, size_t begin, size_t end)
{
    rival *r = args;
    const int64_t from = processor_ns();
    const int own = gettid() == r->caller;
    cpu_set_t mine;
    (void)begin, (void)end;
    if (!own && r->meets) { /* in its first item */
        sched_getaffinity(0, sizeof mine, &mine);
        r->free = CPU_ISSET(r->taken, &mine);
        run_on(r->taken);
        r->meets = 0;
    }
    if (own && r->waits) {
        nanosleep(&(struct timespec){0, 2000000}, NULL); /* so that the worker begins */
        return;
    }
    while (processor_ns() - from < r->item_ns)
        ;
    if (!own)
        r->ended_on = sched_getcpu();
}

/* The cores of the caller and of the rival, which begins. */
static rival meet(void)
{
    static int cores[2];
    cpu_set_t allowed;
    int found = 0;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed))
            cores[found++] = core;
    if (found < 2)
        fail("one core alone");
    tm_pool_cores(cores, 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, spin_on, &cores[1]))
        fail("no thread");
    run_on(cores[0]);
    return (rival){.own = cores[0], .taken = cores[1], .caller = gettid(), .ended_on = -1};
}

/* Calls until the worker takes part in one. */
static void meets(rival *r)
{
    r->meets = 1, r->ended_on = -1;
    for (int round = 0; round < 200 && r->meets; round++)
        tm_pool_run(4, 1, 1, 2, item, r);
    if (r->meets)
        fail("the worker never begins");
}

/* A worker that has begun, and gets no time on its core, goes on on its caller's, and may run everywhere afterwards. */
static void guest(void)
{
    rival r = meet();
    r.waits = 1, r.item_ns = 10000000;
    for (int guests = 0; guests < 16; guests++) {
        for (int round = 0; round < 100 && r.ended_on != r.own; round++)
            meets(&r);
        if (r.ended_on != r.own)
            fail("a worker waits for the core that another thread has");
        meets(&r);
        if (!r.free)
            fail("a worker stays on its caller's core");
        r.ended_on = -1;
    }
}

/* How many of a hundred calls had both threads, while the rival spins. */
static void crowded(void)
{
    rival r = meet();
    int both = 0;
    r.item_ns = 20000;
    for (int call = 0; call < 1000; call++) {
        both += tm_pool_run(16, 1, 1, 2, item, &r) == 2;
        const int64_t from = processor_ns();
        while (processor_ns() - from < 200000)
            ;
    }
    printf("%d\n", both / 10);
}

int main(int argc, char **argv)
{
    alarm(60);
    if (argc > 1 && !strcmp(argv[1], "guest")) {
        guest();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "crowded")) {
        crowded();
        return 0;
    }
    const int forks = argc > 1 && !strcmp(argv[1], "forks");
    const int32_t node[CORES] = {0, 0, 0, 1, 1, 1, 2, 2}, first[CORES] = {0, 0, 2, 3, 4, 4, 6, 7};
    if (argc > 1 && !strcmp(argv[argc - 1], "nodes"))
        tm_pool_nodes(node, first, CORES);
    every_shape(1, 3000);
    const int32_t more[CORES] = {0, 1, 2, 3, 4, 5, 6, 7}; /* though there may be fewer: threads that wait for a core */
    tm_pool_cores(more, CORES);
    every_shape(2, 3000);
    if (tm_pool_workers() != CORES - 2)
        fail("not one worker less than the threads that calls asked for");
    asleep();
    counted c = {.unit = 1, .items = ITEMS, .rounding = rounding()};
    check(&c, tm_pool_run(ITEMS, 1, 1, 4, within, &c), 4);
    if (!atomic_load(&c.nested))
        fail("nothing was nested");
    pthread_t threads[CALLERS];
    for (uintptr_t nth = 0; nth < CALLERS; nth++)
        if (pthread_create(&threads[nth], NULL, caller, (void *)(nth + 2)))
            return 2;
    for (int round = 0; forks && round < 20; round++) {
        forked();
        every_shape((unsigned)round, 20);
    }
    for (int nth = 0; nth < CALLERS; nth++)
        pthread_join(threads[nth], NULL);
    tritmark_pool_set_threads(1);
    c = (counted){.unit = 1, .items = ITEMS, .rounding = rounding()};
    check(&c, tm_pool_run(ITEMS, 1, 1, 4, count_slowly, &c), 1);
    printf("%d workers\n", tm_pool_workers());
    return 0;
}
