/* ternary_matmul of tile64 with a scale for each group, with AMX int8 (../panels_amx.h). A tile takes 64 columns, so
 * groups of 32 and few rows of activations use AVX-512. */
#include "tile64_grouped.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(amx)
#define TM_AMX_TILED 1
#include "../panels_amx.h"

int tm_ternary_matmul_tile64_grouped_amx(void *given)
{
    tm_ternary_matmul_args *args = given;
    const tm_amx_panels tiles = {
        .weights = args->group,
        .bytes = tm_grouped_bytes(args->group),
        .fewest = args->group < STEP ? SIZE_MAX : 8,
        .few = tm_ternary_matmul_tile64_grouped_avx512,
    };
    return tm_panels_amx(args, &tiles);
}

TM_END
#endif
