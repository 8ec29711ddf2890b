/* activation_quantize in plain C: reference for the other kernels, fallback, and baseline. */
#include "activation_quantize.h"

static uint32_t absmax(const float *x, size_t n) { return tm_absmax_plain(x, n, 0); }
static uint16_t largest16(const uint16_t *x, size_t n) { return tm_largest16_plain(x, n, 0); }

TM_ACTIVATION_BODY(absmax, largest16, tm_activation_plain)

int tm_activation_quantize_scalar(void *args) { return tm_activation_run(args, body, TM_RANK(scalar)); }

TM_TABLE(activation_quantize);
