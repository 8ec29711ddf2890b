/* ternary_matmul of tq2_0 with AVX2.
 *
 * One row of activations: for each 32 bytes of a group 4 ands, shifts and maddubs, which meet 32 activations each; four
 * groups at a time, whose sums are added up together (fours.h). Several: by panels of 16 rows of weights (panels_avx2.h).
 *
 * Two groups of two rows in place of four of one, as avx512.c has four, took 1.05 to 1.16 of the time in the caches and 1.02
 * to 1.15 from memory, on Zen 4: here it is not the loads that take it. */
#include "tq2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "tq2_0_avx2.h"

int tm_ternary_matmul_tq2_0_avx2(void *args) { return tm_tq2_0_run(args, TM_RANK(avx2)); }

TM_END
#endif
