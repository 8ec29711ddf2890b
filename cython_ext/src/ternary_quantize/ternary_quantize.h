/* ternary_quantize: for each block of `block` consecutive floats (the last may be shorter)
 *
 *     scale = max(absmax, 1e-8f);  q = (x > 0.5f * scale) - (x < -0.5f * scale)
 *
 * Exact on every path: a maximum has no rounding, half of a float of at least 1e-8 has none, and the rest is
 * comparison. Codes are int8, or packed like I2_S x86: element j of a group of 128 is q + 1 in byte j % 32 of the
 * group's 32 bytes at shift 6 - 2 * (j / 32). The last group is padded with q = 0. Page: docs/kernels/quantizers.md. */
#ifndef TM_TERNARY_QUANTIZE_H
#define TM_TERNARY_QUANTIZE_H

#include "../absmax.h"
#include "../parallel.h"

typedef struct tm_ternary_quantize_args {
    tm_run run;
    const float *x;
    float *scales;   /* one a block */
    int8_t *codes;   /* n bytes, or NULL */
    uint8_t *packed; /* 32 bytes a group, or NULL; exactly one of the two is set */
    size_t n;
    size_t block;
    int32_t stream; /* 1: write around the caches, because the output is larger */
} tm_ternary_quantize_args;

TM_KERNELS(ternary_quantize);

/* 16,384 elements take about 2 us, enough to wake a thread. */
enum { TM_GROUP = 128, TM_GROUP_BYTES = 32, TM_TERNARY_GRAIN = 16384 };

#define TM_ZERO_CODES 0x55 /* four codes of q = 0, packed */

/* What an instruction set provides to the general path. `stream`: write around the caches, in 16-byte stores to aligned
 * addresses; NumPy's arrays are aligned to 16 bytes, not to more. */
typedef struct tm_ternary_steps {
    uint32_t (*absmax)(const float *x, size_t n); /* as doubled bits */
    void (*codes)(const float *x, size_t n, float half, int8_t *codes, int stream);
    void (*pack)(const int8_t *codes, uint8_t *packed, int stream); /* one group */
} tm_ternary_steps;

static inline int tm_ternary_streams(const tm_ternary_quantize_args *a)
{
    uintptr_t starts = a->codes ? (uintptr_t)a->codes | a->block : (uintptr_t)a->packed;
    return a->stream && starts % 16 == 0;
}

static inline void tm_codes_plain(const float *x, size_t n, float half, int8_t *codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = (int8_t)((x[i] > half) - (x[i] < -half));
}

/* Doubled bits (finite.h) of the smallest scale. */
static inline uint32_t tm_doubled_least(void)
{
    float least = 1e-8f;
    return tm_bits(&least) * 2;
}

/* Writes the scale of a block with these largest doubled bits, and returns half of it. */
static inline float tm_ternary_half(uint32_t largest, float *scale)
{
    uint32_t least = tm_doubled_least();
    *scale = tm_from_doubled(largest > least ? largest : least);
    return 0.5f * *scale;
}

static inline __attribute__((always_inline)) uint32_t
tm_ternary_codes(tm_ternary_quantize_args *a, size_t begin, size_t end, const tm_ternary_steps *steps)
{
    const int stream = tm_ternary_streams(a);
    float *scales = a->scales + begin / a->block;
    uint32_t overall = 0;
    for (size_t i = begin; i < end;) {
        size_t n = end - i < a->block ? end - i : a->block;
        uint32_t largest = steps->absmax(a->x + i, n);
        overall = largest > overall ? largest : overall;
        steps->codes(a->x + i, n, tm_ternary_half(largest, scales++), a->codes + i, stream);
        i += n;
    }
    return overall;
}

/* Any block: ends of blocks and groups may differ, so a group's codes are collected piece by piece and then packed. */
static inline __attribute__((always_inline)) uint32_t
tm_ternary_packed(tm_ternary_quantize_args *a, size_t begin, size_t end, const tm_ternary_steps *steps)
{
    const int stream = tm_ternary_streams(a);
    float *scales = a->scales + begin / a->block;
    float half = 0.0f;
    uint32_t overall = 0;
    size_t block_end = begin;
    int8_t codes[TM_GROUP];
    for (size_t group = begin; group < end; group += TM_GROUP) {
        size_t group_end = end - group < TM_GROUP ? end : group + TM_GROUP;
        if (group_end - group < TM_GROUP)
            memset(codes, 0, sizeof codes);
        for (size_t i = group; i < group_end;) {
            if (i == block_end) {
                size_t n = end - i < a->block ? end - i : a->block;
                uint32_t largest = steps->absmax(a->x + i, n);
                overall = largest > overall ? largest : overall;
                half = tm_ternary_half(largest, scales++);
                block_end = i + n;
            }
            size_t stop = block_end < group_end ? block_end : group_end;
            steps->codes(a->x + i, stop - i, half, codes + (i - group), 0);
            i = stop;
        }
        steps->pack(codes, a->packed + group / TM_GROUP * TM_GROUP_BYTES, stream);
    }
    return overall;
}

/* Quantizes a range that begins with a block (and, packed, with a group); returns the largest doubled bits in it. */
static inline __attribute__((always_inline)) uint32_t
tm_ternary_range(tm_ternary_quantize_args *a, size_t begin, size_t end, const tm_ternary_steps *steps)
{
    return a->codes ? tm_ternary_codes(a, begin, end, steps) : tm_ternary_packed(a, begin, end, steps);
}

static inline int tm_ternary_run(tm_ternary_quantize_args *a, tm_body body, int32_t rank)
{
    /* Ranges of threads end with a block and, packed, with a group: at multiples of the least common multiple. */
    size_t twos = a->block & -a->block;
    size_t unit = a->codes || twos >= TM_GROUP ? a->block : a->block * (TM_GROUP / twos);
    a->run.bad = -1;
    a->run.used = tm_parallel(a->n, unit, TM_TERNARY_GRAIN, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
