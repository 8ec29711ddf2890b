/* ternary_matmul of tile64 with a scale for each group, with AMX int8 (../panels_amx.h). A tile takes 64 columns, so
 * groups of 32 and few rows of activations use AVX-512. How few depends on the group: each ends with a store of sums,
 * and conversions and products that take longer than its own. */
#include "tile64_grouped.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(amx)
#define TM_AMX_TILED 1
#include "../panels_amx.h"

/* Fewest rows of activations that use AMX; see docs/kernels/tile64_grouped.md. */
static size_t fewest(size_t group)
{
    switch (group) {
    case 32: return SIZE_MAX;
    case 64: return 24;
    case 128: return 12;
    default: return 10;
    }
}

int tm_ternary_matmul_tile64_grouped_amx(void *given)
{
    tm_ternary_matmul_args *args = given;
    const tm_amx_panels tiles = {
        .weights = args->group,
        .bytes = tm_grouped_bytes(args->group),
        .fewest = fewest(args->group),
        .few = tm_ternary_matmul_tile64_grouped_avx512,
    };
    return tm_panels_amx(args, &tiles);
}

TM_END
#endif
