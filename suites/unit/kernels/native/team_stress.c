/* The pool beside OpenMP's threads, which it shares calls out over while they spin; test_team.py compiles it beside
 * pool.c and team.c, and with each planted fault. Exit status 0: every item was done once, over OpenMP's threads where
 * they ran and never where they slept, and these threads are as they were. */
#define _GNU_SOURCE
#include "pool/pool.h"
#include "stress.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void GOMP_parallel(void (*body)(void *), void *of, unsigned threads, unsigned flags);

enum { ITEMS = 400, CORES = 8, ROUNDS = 1500, ENOUGH = 100 };

typedef struct counted {
    _Atomic int32_t done[ITEMS];
    unsigned rounding;
    _Atomic int32_t wrong;
} counted;

static void busy(int turns)
{
    for (volatile int turn = 0; turn < turns; turn++)
        ;
}

static void count(void *args, size_t begin, size_t end)
{
    counted *c = args;
    if (rounding() != c->rounding)
        atomic_store(&c->wrong, 1);
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&c->done[i], 1);
    busy(200);
}

/* So long that each thread of the team comes to it. */
static void count_slowly(void *args, size_t begin, size_t end)
{
    nanosleep(&(struct timespec){0, 200000}, NULL);
    count(args, begin, end);
}

static void within(void *args, size_t begin, size_t end)
{
    counted inner = {.rounding = rounding()};
    if (tm_pool_run(ITEMS, 1, 1, 4, count, &inner) != 1)
        fail("a call within a call was shared");
    count(args, begin, end);
}

/* OpenMP's threads have something to do, and spin after it; whether their rounding is as it was. */
static void spin(void)
{
    _Atomic int32_t wrong = 0;
#pragma omp parallel
    {
        busy(2000);
        if (rounding())
            atomic_store(&wrong, 1);
    }
    if (atomic_load(&wrong))
        fail("OpenMP's threads round otherwise than they did");
}

static void call(tm_body body, int32_t threads, int up)
{
    round_up(up);
    counted c = {.rounding = rounding()};
    const int32_t used = tm_pool_run(ITEMS, 1, 8, threads, body, &c);
    round_up(0);
    if (used < 1 || used > threads)
        fail("more threads than allowed, or none");
    if (atomic_load(&c.wrong))
        fail("another rounding mode than the caller's");
    for (size_t i = 0; i < ITEMS; i++)
        if (atomic_load(&c.done[i]) != 1)
            fail(c.done[i] ? "an item was done twice" : "an item was skipped");
}

/* Calls behind OpenMP's, until its threads have done `enough` of them: how many they did. */
static int64_t behind(tm_body body, int rounds, int64_t enough, unsigned seed)
{
    tm_pool_watch(1);
    for (int round = 0; round < rounds && tm_pool_saw().team < enough; round++) {
        spin();
        call(body, 2 + rand_r(&seed) % 4, rand_r(&seed) % 2);
    }
    tm_pool_watch(0);
    const tm_pool_seen seen = tm_pool_saw();
    if (seen.team && (!seen.busy_ns || seen.calls < seen.team))
        fail("what OpenMP's threads did was not seen");
    return seen.team;
}

/* In a child, where none of the threads is. */
static void forked(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(3);
        tm_pool_watch(1);
        for (int round = 0; round < 300; round++)
            call(count, 4, 0);
        if (tm_pool_saw().team)
            fail("a child asks for threads that it does not have");
        _exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        fail("the child failed");
}

/* A thread has a team of its own, which ends with it; of more threads than a call may have. */
static void *in_a_thread(void *none)
{
    omp_set_num_threads(CORES);
    tm_pool_watch(1);
    call(count_slowly, 2, 0);
    tm_pool_watch(0);
    return tm_pool_saw().team == 1 ? none : "wrong";
}

int main(void)
{
    const int32_t more[CORES] = {0, 1, 2, 3, 4, 5, 6, 7}; /* though there may be fewer */
    alarm(100);
    tm_pool_cores(more, CORES);
    const int cores = omp_get_num_procs() < CORES ? omp_get_num_procs() : CORES;
    omp_set_num_threads(cores); /* of more than there are cores none spins */
    if (behind(count, 100, ENOUGH, 1))
        fail("OpenMP's threads were asked and nobody told of them");
    tm_pool_team(GOMP_parallel, omp_get_max_threads, omp_get_thread_num);
    const int64_t asked = behind(count, ROUNDS, ENOUGH, 2);
    omp_set_max_active_levels(2); /* OpenMP itself would share out a call within a call */
    const int64_t nested = behind(within, ROUNDS, ENOUGH, 3);
    omp_set_max_active_levels(1);
    if (asked < 2 || !nested) /* a thread's first call asks in any case */
        fail("OpenMP's threads run, and were not asked");

    nanosleep(&(struct timespec){0, 500000000}, NULL);
    tm_pool_watch(1);
    for (int round = 0; round < 200; round++)
        call(count, 4, 0);
    tm_pool_watch(0);
    if (tm_pool_saw().team)
        fail("OpenMP's threads sleep, and were asked");

#pragma omp parallel num_threads(2)
    for (int round = 0; round < 200; round++) {
        counted c = {.rounding = rounding()};
        tm_pool_run(ITEMS, 1, 8, 4, count, &c);
        for (size_t i = 0; i < ITEMS; i++)
            if (atomic_load(&c.done[i]) != 1)
                fail("amid OpenMP's threads: an item was not done once");
    }

    for (int round = 0; round < 30; round++) {
        pthread_t thread;
        void *wrong;
        if (pthread_create(&thread, NULL, in_a_thread, NULL) || pthread_join(thread, &wrong))
            return 2;
        if (wrong)
            fail("a thread's own team was not asked by its first call");
    }
    omp_set_num_threads(cores);
    behind(count, ROUNDS, ENOUGH, 4);
    forked();
    tritmark_pool_set_threads(1);
    if (behind(count, 100, ENOUGH, 5))
        fail("more threads than allowed");
    tritmark_pool_set_threads(CORES);
    tm_pool_team(NULL, NULL, NULL);
    if (behind(count, 100, ENOUGH, 6))
        fail("OpenMP's threads were asked after all");
    return 0;
}
