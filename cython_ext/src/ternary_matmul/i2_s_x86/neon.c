/* ternary_matmul of i2_s_x86 with NEON of every aarch64 processor: for each 16 codes a shift, an and, smlal and smlal2.
 * The int16 sums are added to int32 every five blocks. */
#include "i2_s_x86.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../dots_smlal.h"
#include "i2_s_x86_neon.h"

int tm_ternary_matmul_i2_s_x86_neon(void *args) { return tm_matmul_run_by(args, TM_ROWS, tm_i2_s_body, TM_RANK(neon)); }

TM_END
#endif
