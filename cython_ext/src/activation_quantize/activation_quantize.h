/* activation_quantize: for each row of K floats
 *
 *     s = 127.0f / max(absmax, 1e-5f);  q = clamp(rint(x * s), -128, 127), the float32 product, ties to even;  the
 *     int32 sum of q
 *
 * Exact on every path: the maximum has no rounding, then one IEEE division a row and one IEEE product an element. |x *
 * s| is at most 127 * (1 + 2^-23), which rounds to 127, so for finite rows the clamp has nothing to do and saturating
 * packs will serve as one.
 * |sum| is at most 128 * K, which the boundary keeps within int32. */
#ifndef TM_ACTIVATION_QUANTIZE_H
#define TM_ACTIVATION_QUANTIZE_H

#include "../absmax.h"
#include "../parallel.h"

typedef struct tm_activation_quantize_args {
    tm_run run;
    const float *x;
    int8_t *q;    /* (M, K), contiguous */
    float *scale; /* M */
    int32_t *sum; /* M */
    size_t M;
    size_t K;
    size_t stride; /* elements from one row of x to the next; at least K where there are several */
} tm_activation_quantize_args;

TM_KERNELS(activation_quantize);

/* 32,768 elements take about 3 us, which pays for a wake-up. */
enum { TM_ACTIVATION_GRAIN = 32768 };

typedef struct tm_activation_steps {
    uint32_t (*absmax)(const float *x, size_t n); /* as doubled bits */
    int32_t (*codes)(const float *x, size_t n, float scale, int8_t *q); /* returns their sum */
} tm_activation_steps;

static inline float tm_activation_scale(uint32_t largest)
{
    float absmax = tm_from_doubled(largest);
    return 127.0f / (absmax < 1e-5f ? 1e-5f : absmax);
}

/* 1.5 * 2^23: the floats around it are the integers, so adding it rounds to one, ties to even, and leaves it in the
 * low bits. A conversion would be undefined for the NaN that an infinite row leads to, and lrintf is a call into the
 * library. */
#define TM_ROUNDER 12582912.0f

static inline int32_t tm_activation_plain(const float *x, size_t n, float scale, int8_t *q)
{
    const float rounder = TM_ROUNDER;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        float rounded = x[i] * scale + rounder;
        int32_t code = (int32_t)(tm_bits(&rounded) - tm_bits(&rounder));
        code = code < -128 ? -128 : code > 127 ? 127 : code;
        q[i] = (int8_t)code;
        sum += code;
    }
    return sum;
}

/* The arguments are read before the first store: int8_t may alias anything, so the compiler would read them anew in
 * every row, and where their address agrees with an output's in its last 12 bits such a read waits for the stores.
 * Rows of 64 took up to 4 % longer for it, by where the arguments happened to lie (suites/gate/placed.py). */
static inline __attribute__((always_inline)) void tm_activation_rows(
    tm_activation_quantize_args *args, size_t begin, size_t end, const tm_activation_steps *steps)
{
    const float *x = args->x + begin * args->stride;
    int8_t *q = args->q + begin * args->K;
    float *scales = args->scale + begin;
    int32_t *sums = args->sum + begin;
    const size_t K = args->K, stride = args->stride;
    for (size_t left = end - begin; left; left--) {
        uint32_t largest = steps->absmax(x, K);
        float scale = tm_activation_scale(largest);
        *scales++ = scale;
        *sums++ = steps->codes(x, K, scale, q);
        if (largest >= TM_DOUBLED_INF)
            tm_report_bad(&args->run, (end - left) * K + tm_first_nonfinite(x, 0, K));
        x += stride;
        q += K;
    }
}

static inline int tm_activation_run(tm_activation_quantize_args *a, tm_body body, int32_t rank)
{
    a->run.bad = -1;
    a->run.used = tm_parallel(a->M, 1, (TM_ACTIVATION_GRAIN + a->K - 1) / a->K, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
