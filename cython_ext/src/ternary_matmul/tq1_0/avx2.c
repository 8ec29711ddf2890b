/* ternary_matmul of tq1_0 with AVX2.
 *
 * One row of activations: each group has 8 vectors of digits, which meet 32 activations each through maddubs. A digit
 * takes four instructions, the step to the next two more. Four groups at a time (fours.h): their parts of 16 and 4
 * bytes fill vectors together, and meet activations that are reordered once. Several rows: panels of 16 rows of weights
 * (panels_avx2.h), whose digits are decoded after the bytes were transposed.
 *
 * Rates: `python suites/performance/gemv.py --format tq1_0 --no-peers --variant avx2`. Pages: docs/kernels/tq1_0.md,
 * docs/kernels/panels.md. */
#include "tq1_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "tq1_0_avx2.h"

int tm_ternary_matmul_tq1_0_avx2(void *args) { return tm_tq1_0_run(args, TM_RANK(avx2)); }

TM_END
#endif
