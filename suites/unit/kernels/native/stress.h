/* What the programs share that stress the pool: rounding, which its threads do as their callers do, and failure. */
#ifndef STRESS_H
#define STRESS_H

#include <stdio.h>
#include <unistd.h>

/* How float sums are rounded, where the pool has its threads round as their callers do. */
#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned rounding(void) { return _MM_GET_ROUNDING_MODE(); }
static void round_up(int up) { _MM_SET_ROUNDING_MODE(up ? _MM_ROUND_UP : _MM_ROUND_NEAREST); }
#else
static unsigned rounding(void) { return 0; }
static void round_up(int up) { (void)up; }
#endif

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

#endif
