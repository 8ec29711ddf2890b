/* ternary_matmul of q2_0 with AVX2: as avx512.c, in vectors of half the width: with one row of activations two groups to a
 * vector; with several panels_avx2.h.
 *
 * Story of one row (Zen 3, one thread, hot, by turns, outside of the project; time over v1's at 2560 x 2560 and 2560 x 6912):
 *   v1  four groups at a time, summed by vphaddd, scales loaded one by one      1      1
 *   v2  sixteen, summed by transposing, scales by unpacking                     0.83   0.78
 *       Predicted: 0.7, by instructions; the vector ports, which both keep busy, have 190 where they had 216. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "q2_0_avx2.h"

int tm_ternary_matmul_q2_0_avx2(void *args) { return tm_q2_0_arranged_run(args, TM_RANK(avx2)); }

TM_END
#endif
