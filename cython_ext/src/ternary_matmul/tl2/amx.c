/* ternary_matmul of tl2 with AMX int8: weights are converted to tile64, a stretch of tiles at a time (../amx.c). */
#include "../amx.h"
#include "tl2.h"

#if TM_X86
int tm_ternary_matmul_tl2_amx(void *args)
{
    static const tm_amx_format tl2 = {
        .arrange = tm_tl2_arrange_avx512, .unit = TM_TL2_SIGNED / 4, .few = tm_ternary_matmul_tl2_avx512};
    return tm_matmul_amx(args, &tl2);
}
#endif
