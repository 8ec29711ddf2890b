/* ternary_matmul of tq1_0 with AVX2.
 *
 * One row of activations: of each group 8 vectors of digits, which meet 32 activations each through maddubs. A digit takes
 * four instructions, and the next two more. Four groups at a time (fours.h), whose parts of 16 and 4 bytes fill vectors
 * together, and meet activations that are arranged once. Several: by panels of 16 rows of weights (panels_avx2.h), whose
 * digits are told after the bytes have changed places. */
#include "tq1_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "tq1_0_avx2.h"

int tm_ternary_matmul_tq1_0_avx2(void *args) { return tm_tq1_0_run(args, TM_RANK(avx2)); }

TM_END
#endif
