/* ternary_matmul of iq2_bn_r4 with AMX int8: weights are converted to tile64, a stretch of tiles at a time
 * (../amx.c). */
#include "../amx.h"
#include "iq2_bn_r4.h"

#if TM_X86
static void scales(const tm_ternary_matmul_args *args, size_t t, float *scales)
{
    const uint8_t *fours[TM_TILE_FOURS];
    tm_four_tile(args, t, 0, fours);
    for (size_t f = 0; f < TM_TILE_FOURS; f++)
        memcpy(scales + TM_FOUR * f, fours[f] - TM_FOUR_SCALES, TM_FOUR_SCALES);
}

int tm_ternary_matmul_iq2_bn_r4_amx(void *args)
{
    static const tm_amx_format iq2_bn_r4 = {
        .arrange = tm_four_arrange_avx512,
        .unit = TM_FOUR_BLOCK / 4,
        .scales = scales,
        .few = tm_ternary_matmul_iq2_bn_r4_avx512};
    return tm_matmul_amx(args, &iq2_bn_r4);
}
#endif
