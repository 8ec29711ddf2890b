/* ternary_matmul of tq2_0 with AMX int8 (../panels_amx.h). */
#include "tq2_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(amx)
#include "../panels_amx.h"

int tm_ternary_matmul_tq2_0_amx(void *args)
{
    static const tm_amx_panels tq2_0 = {
        .decode = tm_tq2_0_decoded_avx512,
        .weights = TM_TQ2_0_GROUP,
        .bytes = TM_TQ2_0_BYTES,
        .scale_at = TM_TQ2_0_SCALE,
        .few = tm_ternary_matmul_tq2_0_avx512,
    };
    return tm_panels_amx(args, &tq2_0);
}

TM_END
#endif
