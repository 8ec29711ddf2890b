/* i2s_quantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "i2s_quantize.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_i2s_quantize_args *a = args;
    uint32_t largest = tm_steps_plain(a->x + begin, a->q + begin, end - begin, a->steps, TM_LOW_2);
    tm_check_finite(&a->run, a->x, begin, end, largest);
}

int tm_i2s_quantize_scalar(void *args) { return tm_i2s_quantize_run(args, body, TM_RANK(scalar)); }

TM_TABLE(i2s_quantize);
