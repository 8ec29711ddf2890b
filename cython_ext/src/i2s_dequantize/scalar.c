/* i2s_dequantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "i2s_dequantize.h"

static void body(void *args, size_t begin, size_t end)
{
    const tm_i2s_dequantize_args *a = args;
    tm_dequantize_plain(a->q + begin, a->x + begin, end - begin, a->scale);
}

int tm_i2s_dequantize_scalar(void *args) { return tm_i2s_dequantize_run(args, body, TM_RANK(scalar)); }

TM_TABLE(i2s_dequantize);
