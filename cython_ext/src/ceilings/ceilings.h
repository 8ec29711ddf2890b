/* Probes of what this machine can do: read, write, copy, multiply bytes. Kernels are shown as percent of them, so a
 * slow probe flatters.
 *
 * The story, cold, huge pages, 4.2 MiB footprints, Zen 4 guest of 2 cores; as ratios by turns, for the machine's own
 * speed jumps by half:
 *
 * read                                                     1 thread            2 threads      with 4 KiB pages
 *   v1  64-byte loads; 4, 8 or 16 accumulators             31 to 35 GB/s       36 to 65       23 to 32, 33 to 59
 *   v2  v1, prefetcht1 4 KiB ahead                         1.04 of v1          1.02           1.15, 1.07
 *   v3  quarters side by side, prefetcht1 1 KiB ahead      1.07                1.02 to 1.05   1.33, 1.13
 *   slower: prefetcht0 and nta at any distance (0.91 to 1.0), t1 from 16 KiB on (0.91), 8 streams (0.87 to 1.03),
 *   streams without prefetch (0.93), 4 KiB pages side by side (0.5 to 0.8). As fast as v3: 3 streams, pieces of 64 KiB.
 * Hot, v1 is the fastest: 197 GB/s in L1, 117 in L2, 100 in L3; a prefetch there costs a fifth. Under 1 MiB cold, v2
 * is. So all three are kept, and who measures takes the fastest where he measures.
 *
 * write
 *   v1  64-byte stores                                     28 GB/s             28 to 60; hot in L2 117 a core
 *   v2  non-temporal stores; 1, 2 or 4 streams             28                  28 to 55; hot in L2 28 a core
 *   as v1: rep stosb, rep stosq, 32-byte stores (this processor does not read a line that will be overwritten). clzero
 *   can write zeros only, so it is no write.
 *
 *   Which stores win differs from machine to machine: Intel's servers read a line before a plain store overwrites it
 *   unless the memory is busy, keep few non-temporal stores of one core in flight, and have rep stosb, which does
 *   neither. So all of them are kept, one stream and several.
 *
 * compute
 *   v1  the vpdpbusd intrinsic, 12 accumulators            470 Gop/s           927: one a cycle; GCC 12 adds two moves
 *   v2  in assembly, without the moves                     470                 927; AVX2 (maddubs) 357, now 377
 *   v3  where there is AMX, tdpbusd on two tiles by two: 16384 multiply-adds in 16 cycles; not measured here
 *
 * Bounds: dot products are kept modulo 2^16, which wraps alike in 16- and 32-bit lanes; maddubs never saturates, as
 * 2 * 127 * 127 fits 15 bits. */
#ifndef TM_CEILINGS_H
#define TM_CEILINGS_H

#include "../parallel.h"

enum tm_probe_kind {
    TM_READ,         /* wide loads */
    TM_READ_AHEAD,   /* with prefetch into L2 */
    TM_READ_STREAMS, /* four streams side by side, with prefetch */
    TM_READ_NTA,     /* prefetched past the outer caches, further ahead */
    TM_WRITE,        /* through the caches */
    TM_WRITE_AROUND, /* non-temporal */
    TM_WRITE_AROUND_STREAMS, /* the same, four streams side by side */
    TM_WRITE_STRING, /* rep stosb, which microcode may turn into stores that read no line before they overwrite it */
    TM_COPY,         /* the first half to the second, through the caches */
    TM_COPY_AROUND,  /* the same, written non-temporally */
    TM_COMPUTE,      /* int8 dot products on registers */
    TM_PROBES
};

typedef struct tm_probe_args {
    tm_run run;
    uint8_t *data; /* aligned to 64 bytes */
    size_t nbytes; /* copy: what is read and written together, a multiple of 128 */
    int32_t kind;  /* enum tm_probe_kind */
    /* read: exclusive or of all 8-byte words (the last one padded with zeros); compute: the sum of all dot products
     * modulo 2^16. A write leaves the low byte of the run's number in each byte, a copy the first half in the
     * second. */
    uint64_t checksum;
} tm_probe_args;

TM_KERNELS(probe);

enum {
    TM_PROBE_UNIT = 4096, /* threads begin on pages */
    TM_PROBE_GRAIN = 65536, /* about 1 us of reading in L2: it pays for waking a thread (0.6 us) */
    TM_COMPUTE_GRAIN = 4096, /* about 9 us of dot products */
    TM_DOTS = 8, /* dot products of 64 bytes for each byte of the footprint */
    TM_AHEAD = 4096, /* how far TM_READ_AHEAD prefetches, in bytes */
    TM_STREAM_AHEAD = 1024, /* the same of TM_READ_STREAMS */
    TM_NTA_AHEAD = 2048, /* the same of TM_READ_NTA */
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
