/* absmean_quantize: scale = max(mean |x|, 1e-5), q = clamp(rint(x / scale), -1, 1), the division in float32;
 * steps/steps.h avoids it.
 *
 * The order of the sum is fixed, so that no instruction set and no number of threads changes a bit: at most 1024 chunks
 * of equal length, a multiple of 4096 elements (the last may be shorter). In a chunk 16 float64 lanes, element i added
 * to lane i mod 16 in rising order; lanes are added pairwise, 8 apart, then 4, 2 and 1; chunk sums likewise, 512 apart,
 * then 256, and so on. One rounding to float32, of the mean. A sum of float32 magnitudes cannot overflow in float64, so
 * a chunk's sum is not finite if and only if the chunk holds a NaN or an infinity.
 *
 * x is read twice, the second time backwards, because the caches still hold the end. Blocks of TM_ABSMEAN_BLOCK
 * elements are long enough that going back after each costs nothing. Page: docs/kernels/quantizers.md. */
#ifndef TM_ABSMEAN_QUANTIZE_H
#define TM_ABSMEAN_QUANTIZE_H

#include "../parallel.h"
#include "../steps/steps.h"

enum { TM_ABSMEAN_CHUNK = 4096, TM_ABSMEAN_CHUNKS = 1024, TM_ABSMEAN_LANES = 16, TM_ABSMEAN_BLOCK = 65536 };

typedef struct tm_absmean_quantize_args {
    tm_run run;
    const float *x;
    int8_t *q;
    float *scale;
    size_t n;
    int32_t stream; /* 1: write around the caches, because the output is larger */
    tm_steps steps; /* from here on for the kernel's own use */
    size_t chunk;
    double sums[TM_ABSMEAN_CHUNKS];
} tm_absmean_quantize_args;

TM_KERNELS(absmean_quantize);

/* Adds the magnitudes of `n` elements, a multiple of 16, to the lanes. */
typedef void (*tm_absmean_add)(const float *x, size_t n, double *lanes_f64x16);
/* Quantizes `n` elements. */
typedef void (*tm_absmean_code)(const float *x, int8_t *q, size_t n, tm_steps steps, int stream);

static inline double tm_magnitude(float x) { return (double)__builtin_fabsf(x); }

static inline size_t tm_absmean_length(const tm_absmean_quantize_args *a, size_t c)
{
    size_t left = a->n - c * a->chunk;
    return left < a->chunk ? left : a->chunk;
}

static inline __attribute__((always_inline)) void tm_absmean_sums(
    tm_absmean_quantize_args *a, size_t begin, size_t end, tm_absmean_add add)
{
    for (size_t c = begin; c < end; c++) {
        const float *x = a->x + c * a->chunk;
        size_t n = tm_absmean_length(a, c), whole = n - n % TM_ABSMEAN_LANES;
        double lanes[TM_ABSMEAN_LANES] __attribute__((aligned(64))) = {0};
        add(x, whole, lanes);
        for (size_t i = whole; i < n; i++)
            lanes[i - whole] += tm_magnitude(x[i]);
        for (size_t apart = TM_ABSMEAN_LANES / 2; apart; apart /= 2)
            for (size_t lane = 0; lane < apart; lane++)
                lanes[lane] += lanes[lane + apart];
        a->sums[c] = lanes[0];
    }
}

static inline __attribute__((always_inline)) void tm_absmean_codes(
    tm_absmean_quantize_args *a, size_t begin, size_t end, tm_absmean_code code)
{
    const size_t first = begin * a->chunk;
    size_t past = end * a->chunk < a->n ? end * a->chunk : a->n;
    while (past > first) {
        size_t block = (past - 1) / TM_ABSMEAN_BLOCK * TM_ABSMEAN_BLOCK, from = block > first ? block : first;
        code(a->x + from, a->q + from, past - from, a->steps, a->stream);
        past = from;
    }
}

static inline int tm_absmean_run(tm_absmean_quantize_args *a, tm_body sums, tm_body codes, int32_t rank)
{
    const size_t most = (size_t)TM_ABSMEAN_CHUNK * TM_ABSMEAN_CHUNKS;
    a->chunk = TM_ABSMEAN_CHUNK * ((a->n + most - 1) / most);
    const size_t chunks = (a->n + a->chunk - 1) / a->chunk, grain = (TM_STEPS_GRAIN + a->chunk - 1) / a->chunk;
    a->run.bad = -1;
    a->run.used = tm_parallel(chunks, 1, grain, a->run.threads, sums, a);
    for (size_t c = 0; c < chunks; c++)
        if (!__builtin_isfinite(a->sums[c])) {
            tm_report_bad(&a->run, tm_first_nonfinite(a->x, c * a->chunk, a->n));
            return tm_finish(&a->run, rank);
        }
    for (size_t apart = TM_ABSMEAN_CHUNKS / 2, left = chunks; apart; apart /= 2)
        for (; left > apart; left--)
            a->sums[left - 1 - apart] += a->sums[left - 1];
    double mean = a->sums[0] / (double)a->n;
    *a->scale = (float)(mean > 1e-5 ? mean : 1e-5);
    a->steps = tm_find_steps(*a->scale);
    tm_parallel(chunks, 1, grain, a->run.threads, codes, a);
    return tm_finish(&a->run, rank);
}

#endif
