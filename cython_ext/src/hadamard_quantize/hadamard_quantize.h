/* hadamard_quantize and hadamard_transform: each row of K numbers times signs, then each block of B = 64 to 1024 times
 * the Walsh-Hadamard matrix in natural (Sylvester) order, then times c = float32(1 / sqrt(B)):
 *
 *     for h = 1, 2, 4, ... B / 2:  (a, b) at distance h become (a + b, a - b);  y = sum * c
 *
 * Output is y as float32, float16 or bfloat16, or the int8 codes of the row by the rule of activation_quantize. The
 * order of additions is the same on every path, so all give the same bits. A row with a NaN or infinity in y gets the
 * scale NaN and codes of 0.
 *
 * A block of 1024 takes two passes over 4 KiB in L1: eight vectors in registers each. The rotated row stays in a buffer
 * on the stack until its largest magnitude is known; blocks past the buffer are rotated twice. Page:
 * docs/kernels/hadamard_quantize.md. */
#ifndef TM_HADAMARD_QUANTIZE_H
#define TM_HADAMARD_QUANTIZE_H

#include "../absmax.h"
#include "../half.h"
#include "../parallel.h"

enum tm_hadamard_output { TM_INT8 = TM_INPUTS, TM_OUTPUTS }; /* besides those of half.h */

typedef struct tm_hadamard_quantize_args {
    tm_run run;
    const void *x;
    const int8_t *signs; /* K: -1, 0 or 1 */
    void *out;           /* (M, K), contiguous */
    float *scale;        /* M; for codes only */
    int32_t *sum;        /* M; for codes only */
    size_t M;
    size_t K;            /* a multiple of block */
    size_t block;        /* 64, 128, 256, 512 or 1024 */
    size_t stride;       /* elements between rows of x, at least K if there are several */
    int32_t input;       /* enum tm_input */
    int32_t output;      /* enum tm_input, or TM_INT8 for codes */
} tm_hadamard_quantize_args;

TM_KERNELS(hadamard_quantize);

enum {
    TM_HADAMARD_MOST = 1024,
    TM_HADAMARD_KEPT = 12288,  /* floats of a row between its two passes: 48 KiB, a little more than an L1 */
    TM_HADAMARD_GRAIN = 8192,  /* elements that take about 3 us, enough to wake a thread */
};

/* 1.5 * 2^23, see activation_quantize.h. */
#define TM_HADAMARD_ROUNDER 12582912.0f

/* float32(1 / sqrt(block)). */
static inline float tm_hadamard_factor(size_t block)
{
    switch (block) {
    case 64: return 0.125f;
    case 128: return 0.08838834764831845f;
    case 256: return 0.0625f;
    case 512: return 0.04419417382415922f;
    default: return 0.03125f;
    }
}

/* Rotates one block into y; returns the largest doubled bits of y (finite.h). */
typedef uint32_t (*tm_hadamard_rotate)(const void *x, const int8_t *signs, float *y, size_t block, const int32_t input);
/* The codes of n numbers, a multiple of 64; returns their sum. */
typedef int32_t (*tm_hadamard_codes)(const float *y, size_t n, float scale, int8_t *q);
/* Narrows n numbers, a multiple of 64. */
typedef void (*tm_hadamard_narrow)(const float *y, size_t n, uint16_t *out, const int32_t output);

static inline __attribute__((always_inline)) void tm_hadamard_row_codes(
    const tm_hadamard_quantize_args *args, size_t m, const void *x, float *kept, const int32_t input,
    tm_hadamard_rotate rotate, tm_hadamard_codes codes)
{
    const size_t K = args->K, block = args->block, most = TM_HADAMARD_KEPT - TM_HADAMARD_MOST;
    const int8_t *signs = args->signs;
    int8_t *q = (int8_t *)args->out + m * K;
    /* Blocks that stay, and a place for the others behind them. */
    const size_t stays = K < most ? K : most / block * block;
    uint32_t largest = 0;
    for (size_t at = 0; at < K; at += block) {
        const uint32_t found =
            rotate(tm_input_from(x, at, input), signs + at, kept + (at < stays ? at : stays), block, input);
        largest = found > largest ? found : largest;
    }
    if (largest >= TM_DOUBLED_INF) {
        const uint32_t nan = 0x7fc00000u;
        memcpy(args->scale + m, &nan, sizeof nan);
        args->sum[m] = 0;
        memset(q, 0, K);
        return;
    }
    const float absmax = tm_from_doubled(largest), scale = 127.0f / (absmax < 1e-5f ? 1e-5f : absmax);
    int32_t sum = codes(kept, stays, scale, q);
    for (size_t at = stays; at < K; at += block) {
        rotate(tm_input_from(x, at, input), signs + at, kept, block, input);
        sum += codes(kept, block, scale, q + at);
    }
    args->scale[m] = scale;
    args->sum[m] = sum;
}

static inline __attribute__((always_inline)) void tm_hadamard_row_floats(
    const tm_hadamard_quantize_args *args, size_t m, const void *x, float *kept, const int32_t input,
    tm_hadamard_rotate rotate, tm_hadamard_narrow narrow)
{
    const size_t K = args->K, block = args->block;
    const int32_t output = args->output;
    for (size_t at = 0; at < K; at += block) {
        float *y = output == TM_FLOAT32 ? (float *)args->out + m * K + at : kept;
        rotate(tm_input_from(x, at, input), args->signs + at, y, block, input);
        if (output != TM_FLOAT32)
            narrow(kept, block, (uint16_t *)args->out + m * K + at, output);
    }
}

static inline __attribute__((always_inline)) void tm_hadamard_rows(
    const tm_hadamard_quantize_args *args, size_t begin, size_t end, const int32_t input, tm_hadamard_rotate rotate,
    tm_hadamard_codes codes, tm_hadamard_narrow narrow)
{
    float kept[TM_HADAMARD_KEPT] __attribute__((aligned(64)));
    for (size_t m = begin; m < end; m++) {
        const void *x = tm_input_from(args->x, m * args->stride, input);
        if (args->output == TM_INT8)
            tm_hadamard_row_codes(args, m, x, kept, input, rotate, codes);
        else
            tm_hadamard_row_floats(args, m, x, kept, input, rotate, narrow);
    }
}

/* Defines `body`, with a loop over rows for each kind of input. */
#define TM_HADAMARD_BODY(rotate, codes, narrow) \
    static void body(void *args, size_t begin, size_t end) \
    { \
        switch (((const tm_hadamard_quantize_args *)args)->input) { \
        case TM_FLOAT32: tm_hadamard_rows(args, begin, end, TM_FLOAT32, rotate, codes, narrow); break; \
        case TM_FLOAT16: tm_hadamard_rows(args, begin, end, TM_FLOAT16, rotate, codes, narrow); break; \
        default: tm_hadamard_rows(args, begin, end, TM_BFLOAT16, rotate, codes, narrow); break; \
        } \
    }

static inline int tm_hadamard_run(tm_hadamard_quantize_args *a, tm_body body, int32_t rank)
{
    a->run.bad = -1;
    a->run.used = tm_parallel(a->M, 1, (TM_HADAMARD_GRAIN + a->K - 1) / a->K, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
