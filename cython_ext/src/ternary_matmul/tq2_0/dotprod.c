/* ternary_matmul of tq2_0 with the dot products of Armv8.2: like neon.c, with one sdot for smlal and smlal2. */
#include "tq2_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../dots_sdot.h"
#include "tq2_0_neon.h"

int tm_ternary_matmul_tq2_0_dotprod(void *args)
{
    return tm_groups_run(args, TM_TQ2_0_GROUP, tm_tq2_0_body, TM_RANK(dotprod));
}

TM_END
#endif
