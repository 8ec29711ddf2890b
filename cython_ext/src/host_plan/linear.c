#include "linear.h"

int tm_linear(void *args)
{
    tm_linear_args *linear = args;
    linear->quantize(linear->first);
    linear->run.bad = linear->first->run.bad;
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
