/* ternary_matmul of q2_0 with NEON of every aarch64 processor: a group of four rows at a time. Its fields meet
 * activations that were reordered once (ld4). For each 16 codes a shift, an and, smlal and smlal2. */
#include "q2_0.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../dots_smlal.h"
#include "q2_0_neon.h"

int tm_ternary_matmul_q2_0_neon(void *args) { return tm_q2_0_run_neon(args, TM_RANK(neon)); }

TM_END
#endif
