/* ternary_quantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "ternary_quantize.h"

static uint32_t absmax(const float *x, size_t n) { return tm_absmax_plain(x, n, 0); }

static void codes(const float *x, size_t n, float half, int8_t *codes, int stream)
{
    (void)stream;
    tm_codes_plain(x, n, half, codes);
}

static void pack(const int8_t *codes, uint8_t *packed, int stream)
{
    (void)stream;
    for (size_t i = 0; i < TM_GROUP_BYTES; i++)
        packed[i] = (uint8_t)(TM_ZERO_CODES + 64 * codes[i] + 16 * codes[i + 32] + 4 * codes[i + 64] + codes[i + 96]);
}

static const tm_ternary_steps steps = {absmax, codes, pack};

static void body(void *args, size_t begin, size_t end)
{
    tm_ternary_quantize_args *a = args;
    tm_check_finite(&a->run, a->x, begin, end, tm_ternary_range(a, begin, end, &steps));
}

int tm_ternary_quantize_scalar(void *args) { return tm_ternary_run(args, body, TM_RANK(scalar)); }

TM_TABLE(ternary_quantize);
