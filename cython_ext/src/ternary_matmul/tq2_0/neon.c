/* ternary_matmul of tq2_0 with NEON of every aarch64 processor: for each 16 codes a shift, an and, smlal and smlal2; a
 * group of four rows at a time. */
#include "tq2_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../dots_smlal.h"
#include "tq2_0_neon.h"

int tm_ternary_matmul_tq2_0_neon(void *args)
{
    return tm_groups_run(args, TM_TQ2_0_GROUP, tm_tq2_0_body, TM_RANK(neon));
}

TM_END
#endif
