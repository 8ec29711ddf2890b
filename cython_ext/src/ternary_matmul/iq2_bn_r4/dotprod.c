/* ternary_matmul of iq2_bn_r4 with the dot products of Armv8.2: for each 16 codes a shift, an and, and an sdot for each
 * row of activations. It takes four activations from a lane of the 16 that were loaded, so nothing is broadcast. Four
 * fours by four rows of activations have 16 sums, half of the registers. */
#include "iq2_bn_r4.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)

enum { TM_FOURS_AT_ONCE = TM_FOURS, TM_FOURS_ROWS = TM_MATMUL_BLOCK, TM_FOURS_COLUMNS = 1 << 23 };

typedef int32x4_t tm_four_sums;

#define TM_FOUR_ADDED vdotq_laneq_s32

static inline int32x4_t tm_four_sum(tm_four_sums s) { return s; }

#include "iq2_bn_r4_neon.h"

int tm_ternary_matmul_iq2_bn_r4_dotprod(void *args)
{
    return tm_matmul_run_by(args, TM_FOUR, tm_fours_body, TM_RANK(dotprod));
}

TM_END
#endif
