#include "linear.h"

void tm_widen_bfloat16(float *to, const uint16_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

void tm_narrow_bfloat16(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = tm_bfloat16(from[i]);
}

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
