/* ternary_matmul of i2_s_x86 with the dot products of Armv8.2: like neon.c, with one sdot for smlal and smlal2. */
#include "i2_s_x86.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../dots_sdot.h"
#include "i2_s_x86_neon.h"

int tm_ternary_matmul_i2_s_x86_dotprod(void *args)
{
    return tm_matmul_run_by(args, TM_ROWS, tm_i2_s_body, TM_RANK(dotprod));
}

TM_END
#endif
