/* ternary_matmul of q2_0 with AMX int8 (../panels_amx.h). */
#include "q2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(amx)
#include "../panels_amx.h"

int tm_ternary_matmul_q2_0_amx(void *args)
{
    static const tm_amx_panels q2_0 = {
        .decode = tm_q2_0_decoded_avx512,
        .weights = TM_Q2_0_GROUP,
        .bytes = TM_Q2_0_BYTES,
        .by_fours = 1,
        .fewest = 8,
        .few = tm_ternary_matmul_q2_0_avx512,
    };
    return tm_panels_amx(args, &q2_0);
}

TM_END
#endif
