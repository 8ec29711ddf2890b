/* ternary_matmul of q2_0 with AVX2: as avx512.c, in vectors of half the width: with one row of activations two groups to a
 * vector; with several panels_avx2.h. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "q2_0_avx2.h"

int tm_ternary_matmul_q2_0_avx2(void *args) { return tm_q2_0_arranged_run(args, TM_RANK(avx2)); }

TM_END
#endif
