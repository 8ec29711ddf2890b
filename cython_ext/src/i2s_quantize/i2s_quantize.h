/* i2s_quantize: q[i] = rint(clamp(x[i] / scale, -2, 1)), the division in float32; steps/steps.h avoids it. Page:
 * docs/kernels/quantizers.md. */
#ifndef TM_I2S_QUANTIZE_H
#define TM_I2S_QUANTIZE_H

#include "../parallel.h"
#include "../steps/steps.h"

typedef struct tm_i2s_quantize_args {
    tm_run run;
    const float *x;
    int8_t *q;
    size_t n;
    tm_steps steps; /* tm_find_steps of the scale */
    int32_t stream; /* 1: write around the caches, because the output is larger */
} tm_i2s_quantize_args;

TM_KERNELS(i2s_quantize);

static inline int tm_i2s_quantize_run(tm_i2s_quantize_args *a, tm_body body, int32_t rank)
{
    a->run.bad = -1;
    a->run.used = tm_parallel(a->n, TM_STEPS_UNIT, TM_STEPS_GRAIN, a->run.threads, body, a);
    return tm_finish(&a->run, rank);
}

#endif
