/* Probes of what this machine can do: read, write, copy, multiply bytes. Kernels are shown as percent of them, so a
 * slow probe flatters.
 *
 * The fastest probe of a kind depends on the machine, the footprint and the caches. So several are kept, and the
 * fastest is the ceiling where it is measured.
 * - read: plain 64-byte loads are fastest in the caches; with prefetch, from memory below 1 MiB; four streams side by
 *   side with prefetch, from memory above that.
 * - write: through the caches, non-temporal, and rep stosb. Intel's servers read a line before a plain store overwrites
 *   it unless the memory is busy, keep few non-temporal stores of one core in flight, and have rep stosb, which does
 *   neither.
 * - compute: int8 dot products on registers, in assembly: GCC 12 adds two moves to the intrinsic. With AMX, tdpbusd on
 *   two tiles by two: 16384 multiply-adds in 16 cycles.
 *
 * Bounds: dot products are kept modulo 2^16, which wraps alike in 16- and 32-bit lanes; maddubs never saturates, as 2 *
 * 127 * 127 fits 15 bits.
 *
 * Rates: `tritmark machine`. Versions and what lost: docs/kernels/ceilings.md. */
#ifndef TM_CEILINGS_H
#define TM_CEILINGS_H

#include "../parallel.h"

enum tm_probe_kind {
    TM_READ,         /* wide loads */
    TM_READ_AHEAD,   /* with prefetch into L2 */
    TM_READ_STREAMS, /* four streams side by side, with prefetch */
    TM_READ_NTA,     /* prefetched past the outer caches */
    TM_WRITE,        /* through the caches */
    TM_WRITE_AROUND, /* non-temporal */
    TM_WRITE_AROUND_STREAMS, /* the same, four streams side by side */
    TM_WRITE_STRING, /* rep stosb, which microcode may turn into stores that do not read the line first */
    TM_COPY,         /* the first half to the second, through the caches */
    TM_COPY_AROUND,  /* the same, written non-temporally */
    TM_COMPUTE,      /* int8 dot products on registers */
    TM_PROBES
};

typedef struct tm_probe_args {
    tm_run run;
    uint8_t *data; /* aligned to 64 bytes */
    size_t nbytes; /* copy: bytes read and written together, a multiple of 128 */
    int32_t kind;  /* enum tm_probe_kind */
    /* read: exclusive or of all 8-byte words (the last one padded with zeros). compute: the sum of all dot products
     * modulo 2^16. A write leaves the low byte of the run's number in each byte, a copy the first half in the
     * second. */
    uint64_t checksum;
} tm_probe_args;

TM_KERNELS(probe);

enum {
    TM_PROBE_UNIT = 4096, /* threads begin on pages */
    TM_PROBE_GRAIN = 65536, /* about 1 us of reading in L2, which justifies waking a thread (0.6 us) */
    TM_COMPUTE_GRAIN = 4096, /* about 9 us of dot products */
    TM_DOTS = 8, /* dot products of 64 bytes for each byte of the footprint */
    TM_AHEAD = 4096, /* prefetch distance of TM_READ_AHEAD, in bytes */
    TM_STREAM_AHEAD = 1024, /* of TM_READ_STREAMS */
    TM_NTA_AHEAD = 2048, /* of TM_READ_NTA */
    TM_STREAMS = 4,
};

static inline void tm_probe_add(tm_probe_args *a, uint64_t part)
{
    if (a->kind == TM_COMPUTE)
        __atomic_fetch_add(&a->checksum, part, __ATOMIC_RELAXED);
    else
        __atomic_fetch_xor(&a->checksum, part, __ATOMIC_RELAXED);
}

static inline uint8_t tm_probe_fill(const tm_probe_args *a) { return (uint8_t)(a->run.runs + 1); }

/* Runs the body of the call's kind over the threads. */
static inline int tm_probe_run(tm_probe_args *a, const tm_body bodies[TM_PROBES], int32_t rank)
{
    size_t items = a->nbytes, grain = TM_PROBE_GRAIN;
    if (a->kind == TM_COPY || a->kind == TM_COPY_AROUND) {
        items /= 2;
        grain /= 2;
    } else if (a->kind == TM_COMPUTE) {
        grain = TM_COMPUTE_GRAIN;
    }
    a->checksum = 0;
    a->run.used = tm_parallel(items, TM_PROBE_UNIT, grain, a->run.threads, bodies[a->kind], a);
    if (a->kind == TM_COMPUTE)
        a->checksum &= 0xffff;
    return tm_finish(&a->run, rank);
}

#endif
