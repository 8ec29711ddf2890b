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

int main(int argc, char **argv)
{
    const int forks = argc > 1 && !strcmp(argv[1], "forks");
    const int32_t node[CORES] = {0, 0, 0, 1, 1, 1, 2, 2}, first[CORES] = {0, 0, 2, 3, 4, 4, 6, 7};
    if (argc > 1 && !strcmp(argv[argc - 1], "nodes"))
        tm_pool_nodes(node, first, CORES);
    alarm(60);
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
