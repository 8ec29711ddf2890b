#include "linear.h"

/* The first element of the first row whose scale is NaN, or -1: hadamard_quantize reports such rows only by it. */
static int64_t first_unscaled(const tm_ternary_matmul_args *product)
{
    for (size_t m = 0; m < product->M; m++)
        if (tm_bits(product->act_scale + m) * 2 > TM_DOUBLED_INF)
            return (int64_t)(m * product->K);
    return -1;
}

int tm_linear(void *args)
{
    tm_linear_args *linear = args;
    linear->quantize(linear->first);
    linear->run.bad = linear->rotates ? first_unscaled(linear->second) : ((const tm_run *)linear->first)->bad;
    if (linear->run.bad < 0) {
        linear->product(linear->second);
        if (linear->bias != NULL) {
            const size_t M = linear->second->M, N = linear->second->N;
            for (size_t m = 0; m < M; m++) {
                float *row = (float *)linear->second->out + m * N;
                for (size_t n = 0; n < N; n++)
                    row[n] += linear->bias[n];
            }
        }
        linear->run.used = linear->second->run.used;
    }
    return tm_finish(&linear->run, linear->second->run.ran);
}
