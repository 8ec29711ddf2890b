/* ternary_matmul of i2_s_x86 with AMX int8: weights are converted to tile64, a stretch of tiles at a time
 * (../amx.c). */
#include "../amx.h"
#include "i2_s_x86.h"

#if TM_X86
int tm_ternary_matmul_i2_s_x86_amx(void *args)
{
    static const tm_amx_format i2_s_x86 = {
        .arrange = tm_i2_s_arrange_avx512, .unit = TM_I2_S_BYTES, .few = tm_ternary_matmul_i2_s_x86_avx512};
    return tm_matmul_amx(args, &i2_s_x86);
}
#endif
