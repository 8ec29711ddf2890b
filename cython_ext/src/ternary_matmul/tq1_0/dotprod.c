/* ternary_matmul of tq1_0 with the dot products of Armv8.2: like neon.c, with one sdot for smlal and smlal2. */
#include "tq1_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../dots_sdot.h"
#include "tq1_0_neon.h"

int tm_ternary_matmul_tq1_0_dotprod(void *args)
{
    return tm_groups_run(args, TM_TQ1_0_GROUP, tm_tq1_0_body, TM_RANK(dotprod));
}

TM_END
#endif
