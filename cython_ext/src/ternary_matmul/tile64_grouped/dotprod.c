/* ternary_matmul of tile64 with a scale for each group, with the dot products of Armv8.2: the loops of ../dot_neon.h,
 * group by group. */
#include "tile64_grouped.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../tiles_dotprod.h"
#include "start_neon.h"
#include "dots_neon.h"

static inline __attribute__((always_inline)) void tm_grouped_micro_by(
    const enum tm_prefetch_level level, size_t ahead, const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    (void)level, (void)ahead;
    const int parts = tm_tile_parts(run->there, 4);
    switch (rows) {
    case 1: tm_grouped_quarters(1, 4, 0, run, sums); break;
    case 2:
        for (int first = 0; first < parts; first += 2)
            tm_grouped_quarters(2, 2, first, run, sums);
        break;
    case 3:
        for (int first = 0; first < parts; first++)
            tm_grouped_quarters(3, 1, first, run, sums);
        break;
    default:
        for (int first = 0; first < parts; first++)
            tm_grouped_quarters(4, 1, first, run, sums);
        break;
    }
}

#include "kernel.h"

int tm_ternary_matmul_tile64_grouped_dotprod(void *args)
{
    return tm_grouped_run_by(args, begins, body, TM_RANK(dotprod));
}

TM_END
#endif
