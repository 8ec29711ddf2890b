/* ternary_matmul of q2_0 with AVX2: as avx512.c, in vectors of half the width: with one row of activations two groups to a
 * vector; with several panels_avx2.h.
 *
 * Story of one row (Zen 3, hot; `tritmark gate 15df1a5 dc8432f --op ternary_matmul --variant
 * 'cpu/ternary_matmul/q2_0/float32/avx2' --suite FILE.toml` with these shapes):     2560 x 6912   6912 x 2560
 *   v1  four groups at a time, summed by vphaddd, scales loaded one by one          1             1
 *   v2  sixteen, summed by transposing, scales by unpacking                         0.79          0.83
 *       Predicted: 0.7, by instructions; but it was the vector ports that v1 kept busy, too. */
#include "q2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avx2)
#include "../dots_maddubs.h"
#include "q2_0_avx2.h"

int tm_ternary_matmul_q2_0_avx2(void *args) { return tm_q2_0_arranged_run(args, TM_RANK(avx2)); }

TM_END
#endif
