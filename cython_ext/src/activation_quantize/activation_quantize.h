/* activation_quantize: for each row of K numbers, float32, or float16 or bfloat16 widened to it,
 *
 *     s = 127.0f / max(absmax, 1e-5f);  q = clamp(rint(x * s), -128, 127), the float32 product, ties to even;
 *     sum = the int32 sum of q
 *
 * Exact on every path: the maximum has no rounding, then one IEEE division a row and one IEEE product an element. |x *
 * s| is at most 127 * (1 + 2^-23), which rounds to 127. So for finite rows the clamp changes nothing, and saturating
 * packs can replace it. |sum| is at most 128 * K, which the boundary keeps within int32. Page:
 * docs/kernels/quantizers.md. */
#ifndef TM_ACTIVATION_QUANTIZE_H
#define TM_ACTIVATION_QUANTIZE_H

#include "../absmax.h"
#include "../half.h"
#include "../parallel.h"

typedef struct tm_activation_quantize_args {
    tm_run run;
    const void *x;
    int8_t *q;    /* (M, K), contiguous */
    float *scale; /* M */
    int32_t *sum; /* M */
    size_t M;
    size_t K;
    size_t stride; /* elements between rows of x, at least K if there are several */
    int32_t input; /* enum tm_input */
} tm_activation_quantize_args;

TM_KERNELS(activation_quantize);

/* 32,768 elements take about 3 us, enough to wake a thread. */
enum { TM_ACTIVATION_GRAIN = 32768 };

/* Defines `body`, with a loop over rows for each kind of input. All is inlined: two calls through pointers take up to a
 * third of the time of a short row. `absmax` is for floats, `largest` gives the doubled bits of 16-bit numbers, `codes`
 * takes the kind last. */
#define TM_ACTIVATION_BODY(absmax, largest, codes) \
    static inline __attribute__((always_inline)) uint32_t tm_row_absmax(const void *x, size_t n, enum tm_input input) \
    { \
        return input == TM_FLOAT32   ? absmax(x, n) \
               : input == TM_FLOAT16 ? tm_doubled_float16(largest(x, n)) \
                                     : (uint32_t)largest(x, n) << 16; \
    } \
    static void body(void *args, size_t begin, size_t end) \
    { \
        switch (((const tm_activation_quantize_args *)args)->input) { \
        case TM_FLOAT32: tm_activation_rows(args, begin, end, TM_FLOAT32, tm_row_absmax, codes); break; \
        case TM_FLOAT16: tm_activation_rows(args, begin, end, TM_FLOAT16, tm_row_absmax, codes); break; \
        default: tm_activation_rows(args, begin, end, TM_BFLOAT16, tm_row_absmax, codes); break; \
        } \
    }

/* The largest magnitude of a row, as doubled bits; the row's codes, whose sum is returned. */
typedef uint32_t (*tm_activation_absmax)(const void *x, size_t n, enum tm_input input);
typedef int32_t (*tm_activation_codes)(const void *x, size_t n, float scale, int8_t *q, enum tm_input input);

/* The doubled bits of a float32 from those of a float16. */
static inline uint32_t tm_doubled_float16(uint16_t doubled)
{
    const float value = tm_half(doubled >> 1);
    return tm_bits(&value) * 2;
}

/* The larger of `largest` and the doubled bits of 16-bit numbers x[0..n): in both formats magnitudes rise with them. */
static inline uint16_t tm_largest16_plain(const uint16_t *x, size_t n, uint16_t largest)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t doubled = (uint16_t)(x[i] * 2u);
        largest = doubled > largest ? doubled : largest;
    }
    return largest;
}

static inline float tm_activation_scale(uint32_t largest)
{
    float absmax = tm_from_doubled(largest);
    return 127.0f / (absmax < 1e-5f ? 1e-5f : absmax);
}

/* 1.5 * 2^23: floats near it are integers, so adding it rounds to one, ties to even, and leaves it in the low bits. A
 * conversion is undefined for the NaN of an infinite row, and lrintf is a call into the library. */
#define TM_ROUNDER 12582912.0f

static inline __attribute__((always_inline)) int32_t
tm_activation_plain(const void *x, size_t n, float scale, int8_t *q, enum tm_input input)
{
    const float rounder = TM_ROUNDER;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        float rounded = tm_input_at(x, i, input) * scale + rounder;
        int32_t code = (int32_t)(tm_bits(&rounded) - tm_bits(&rounder));
        code = code < -128 ? -128 : code > 127 ? 127 : code;
        q[i] = (int8_t)code;
        sum += code;
    }
    return sum;
}

/* Index of the first NaN or infinity in a row. */
static inline size_t tm_first_bad(const void *x, size_t n, enum tm_input input)
{
    for (size_t i = 0; i < n; i++) {
        const float value = tm_input_at(x, i, input);
        if (tm_bits(&value) * 2 >= TM_DOUBLED_INF)
            return i;
    }
    return n;
}

/* Arguments are read before the first store: int8_t may alias anything, so the compiler would reload them in every row.
 * If their address agrees with an output's in its last 12 bits, such a load waits for the stores; the time then depends
 * on where the arguments lie (suites/gate/placed.py). */
static inline __attribute__((always_inline)) void tm_activation_rows(
    tm_activation_quantize_args *args, size_t begin, size_t end, const enum tm_input input, tm_activation_absmax absmax,
    tm_activation_codes codes)
{
    const void *x = tm_input_from(args->x, begin * args->stride, input);
    int8_t *q = args->q + begin * args->K;
    float *scales = args->scale + begin;
    int32_t *sums = args->sum + begin;
    const size_t K = args->K, stride = args->stride;
    for (size_t left = end - begin; left; left--) {
        uint32_t largest = absmax(x, K, input);
        float scale = tm_activation_scale(largest);
        *scales++ = scale;
        *sums++ = codes(x, K, scale, q, input);
        if (largest >= TM_DOUBLED_INF)
            tm_report_bad(&args->run, (end - left) * K + tm_first_bad(x, K, input));
        x = tm_input_from(x, stride, input);
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
