/* ternary_matmul of q2_0 with AVX2: like avx512.c in vectors of half the width. One row of activations has two groups
 * to a vector, several rows use panels_avx2.h.
 *
 * Rates: `python suites/performance/gemv.py --format q2_0 --no-peers --variant avx2`. Versions:
 * docs/kernels/q2_0.md. */
#include "q2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "q2_0_avx2.h"

int tm_ternary_matmul_q2_0_avx2(void *args) { return tm_q2_0_arranged_run(args, TM_RANK(avx2)); }

TM_END
#endif
