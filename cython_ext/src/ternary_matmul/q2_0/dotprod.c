/* ternary_matmul of q2_0 with the dot products of Armv8.2: like neon.c, with one sdot for smlal and smlal2. */
#include "q2_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../dots_sdot.h"
#include "q2_0_neon.h"

int tm_ternary_matmul_q2_0_dotprod(void *args) { return tm_q2_0_run_neon(args, TM_RANK(dotprod)); }

TM_END
#endif
