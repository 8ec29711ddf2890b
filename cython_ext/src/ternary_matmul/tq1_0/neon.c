/* ternary_matmul of tq1_0 with NEON of every aarch64 processor, a group of four rows at a time. For each 16 codes two
 * comparisons and two additions for the digits, two instructions to the next digits, smlal and smlal2. */
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
