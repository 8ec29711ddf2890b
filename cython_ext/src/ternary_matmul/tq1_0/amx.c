/* ternary_matmul of tq1_0 with AMX int8 (../panels_amx.h). */
#include "tq1_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(amx)
#include "../panels_amx.h"

int tm_ternary_matmul_tq1_0_amx(void *args)
{
    static const tm_amx_panels tq1_0 = {
        .decode = tm_tq1_0_decoded_avx512,
        .weights = TM_TQ1_0_GROUP,
        .bytes = TM_TQ1_0_BYTES,
        .scale_at = TM_TQ1_0_SCALE,
        .fewest = 8,
        .few = tm_ternary_matmul_tq1_0_avx512,
    };
    return tm_panels_amx(args, &tq1_0);
}

TM_END
#endif
