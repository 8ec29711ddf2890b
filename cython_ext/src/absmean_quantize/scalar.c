/* absmean_quantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "absmean_quantize.h"

static inline void add(const float *x, size_t n, double *lanes)
{
    for (size_t i = 0; i < n; i += TM_ABSMEAN_LANES)
        for (size_t lane = 0; lane < TM_ABSMEAN_LANES; lane++)
            lanes[lane] += tm_magnitude(x[i + lane]);
}

static inline void code(const float *x, int8_t *q, size_t n, tm_steps steps, int stream)
{
    (void)stream;
    tm_steps_plain(x, q, n, steps, TM_LOW_1);
}

static void sums(void *args, size_t begin, size_t end) { tm_absmean_sums(args, begin, end, add); }
static void codes(void *args, size_t begin, size_t end) { tm_absmean_codes(args, begin, end, code); }

int tm_absmean_quantize_scalar(void *args) { return tm_absmean_run(args, sums, codes, TM_RANK(scalar)); }

TM_TABLE(absmean_quantize);
