/* ternary_matmul of tq2_0 with AVX2.
 *
 * One row of activations: for each 32 bytes of a group 4 ands, shifts and maddubs, which meet 32 activations each. Four
 * groups at a time, whose sums are added up together (fours.h). Several rows: panels of 16 rows of weights
 * (panels_avx2.h).
 *
 * Rates: `python suites/performance/gemv.py --format tq2_0 --no-peers --variant avx2`. What lost:
 * docs/kernels/tq2_0.md. */
#include "tq2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "tq2_0_avx2.h"

int tm_ternary_matmul_tq2_0_avx2(void *args) { return tm_tq2_0_run(args, TM_RANK(avx2)); }

TM_END
#endif
