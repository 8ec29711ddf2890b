/* Probes of what this machine can do: read, write, copy, multiply bytes. Kernels are shown as percent of them, so a slow probe flatters.
 *
 * The story, in GB/s cold (DRAM, huge pages, 4.4 MB footprints; Zen 4 guest of 2 cores, one L3 of 32 MiB) at 1 / 2 threads:
 *
 * read
 *   v1  64-byte loads, 4, 8 or 16 accumulators: all the same              34.6 / 64.4
 *   v2  v1 and prefetcht1 4 KiB ahead (T0 33, NTA 32, 16 KiB 31)            36.7 / 68.4   hot in L2 it costs a fifth: 92 against 117
 *   v3  four streams 64 KiB apart, prefetcht1 2 KiB ahead                   37.8 / 71.2   with 4 KiB pages 36.4 against v1's 31.8
 *   tried: 2, 3, 6, 8 streams; quarters of the range; 512 bytes to 4 KiB ahead; pages of 4 KiB side by side: 16.8 to 37.9 / 57 to 69
 * v1 is the fastest in L1, L2 and L3, v3 in DRAM, v2 on machines whose hardware prefetcher drops streams: all three are kept, and who
 * measures takes the fastest at that footprint.
 *
 * write
 *   v1  64-byte stores                                                     28.4, in L2 117; Zen 4 reads no line that is fully written
 *   v2  non-temporal stores, 1, 2 or 4 streams                              28.6, in L2 26
 *   tried: rep stosb, rep stosq, 32-byte stores: as v1. clzero writes zeros only, so it is no write.
 *
 * compute
 *   vpdpbusd, 64 bytes, 12 accumulators                                    469 Gop/s a core; 32 bytes: the same
 *   maddubs and paddw, 32 bytes                                            380
 * A tile unit (AMX) is not asked, nor AVX-VNNI without AVX-512: no kernel here uses them.
 *
 * Bounds: dot products are kept modulo 2^16, which wraps alike in 16- and 32-bit lanes; maddubs never saturates, as 2 * 127 * 127 fits
 * 15 bits. */
#ifndef TM_CEILINGS_H
#define TM_CEILINGS_H

#include "../parallel.h"

enum tm_probe_kind {
    TM_READ,         /* wide loads */
    TM_READ_AHEAD,   /* with prefetch into L2 */
    TM_READ_STREAMS, /* four streams side by side, with prefetch */
    TM_WRITE,        /* through the caches */
    TM_WRITE_AROUND, /* non-temporal */
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
    /* read: exclusive or of all 8-byte words (the last one padded with zeros); compute: the sum of all dot products modulo 2^16.
     * A write leaves the low byte of the run's number in each byte, a copy the first half in the second. */
    uint64_t checksum;
} tm_probe_args;

TM_KERNEL(probe);

enum {
    TM_PROBE_UNIT = 4096,      /* threads begin on pages */
    TM_PROBE_GRAIN = 65536,    /* about 1 us of reading in L2: it pays for waking a thread (0.6 us) */
    TM_COMPUTE_GRAIN = 4096,   /* about 9 us of dot products */
    TM_DOTS = 8,               /* dot products of 64 bytes for each byte of the footprint */
    TM_AHEAD = 4096,           /* how far TM_READ_AHEAD prefetches, in bytes */
    TM_STREAM_AHEAD = 1024,    /* the same of TM_READ_STREAMS */
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
static inline int tm_probe_run(tm_probe_args *a, const tm_body bodies[TM_PROBES], enum tm_isa isa)
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
    return tm_finish(&a->run, isa);
}

#endif
