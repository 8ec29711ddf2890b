/* ternary_matmul of tl1 with AMX int8: weights are converted to tile64, a stretch of tiles at a time (../amx.c). */
#include "../amx.h"
#include "tl1.h"

#if TM_X86
int tm_ternary_matmul_tl1_amx(void *args)
{
    static const tm_amx_format tl1 = {
        .arrange = tm_tl1_arrange_avx512, .unit = TM_TL1_COLUMNS / 4, .few = tm_ternary_matmul_tl1_avx512};
    return tm_matmul_amx(args, &tl1);
}
#endif
