/* i2s_dequantize: x[i] = (float)q[i] * scale, for any int8 q. Exact on every path: int8 to float32 is exact, then one
 * IEEE product. Page: docs/kernels/quantizers.md. */
#ifndef TM_I2S_DEQUANTIZE_H
#define TM_I2S_DEQUANTIZE_H

#include "../parallel.h"
#include "../stream.h"

/* Kernels read pointers from here before the first store: a vector store may alias anything, so the compiler would
 * reload them for every vector. If their address agrees with a store's in its last 12 bits, the load waits for the
 * store; the time then depends on where the arguments lie (suites/gate/placed.py). */
typedef struct tm_i2s_dequantize_args {
    tm_run run;
    const int8_t *q;
    float *x;
    size_t n;
    float scale;
    int32_t stream; /* 1: write around the caches, because the output is larger */
} tm_i2s_dequantize_args;

TM_KERNELS(i2s_dequantize);

/* A range starts on a cache line of the output if the output does. 16,384 elements take about 2 us, enough to wake a
 * thread. */
enum { TM_DEQUANTIZE_UNIT = 16, TM_DEQUANTIZE_GRAIN = 16384 };

static inline void tm_dequantize_plain(const int8_t *q, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)q[i] * scale;
}

static inline int tm_i2s_dequantize_run(tm_i2s_dequantize_args *a, tm_body body, int32_t rank)
{
    a->run.used = tm_parallel(a->n, TM_DEQUANTIZE_UNIT, TM_DEQUANTIZE_GRAIN, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
