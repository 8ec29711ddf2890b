/* ternary_matmul of tq1_0 with NEON of every aarch64 processor: for each 16 codes two comparisons, two additions, which
 * are digits, two that bring the next, smlal and smlal2; a group of four rows at a time. */
#include "tq1_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../dots_smlal.h"
#include "tq1_0_neon.h"

int tm_ternary_matmul_tq1_0_neon(void *args)
{
    return tm_groups_run(args, TM_TQ1_0_GROUP, tm_tq1_0_body, TM_RANK(neon));
}

TM_END
#endif
