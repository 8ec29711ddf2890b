/* ternary_matmul with the dot products of Armv8.2 (sdot): the nested masks of avx512.c, whose bound on a chunk holds
 * here too, on quarters of a group: 4 of each 16 rows.
 *
 * For each 16 bytes: 1 load, 3 ands, 1 shift, and for each row of activations 4 sdot, which take the four activations
 * out of a lane of the 16 that were loaded: nothing is broadcast. */
#include "tiles.h"

#if TM_ARM
TM_BEGIN(dotprod)

#include "dot_neon.h"

static void micro(const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    switch (rows) {
    case 1: tm_dot_quarters(1, 4, 0, tile, groups, a, lda, acc); break;
    case 2:
        for (int first = 0; first < 4; first += 2)
            tm_dot_quarters(2, 2, first, tile, groups, a, lda, acc);
        break;
    case 3:
        for (int first = 0; first < 4; first++)
            tm_dot_quarters(3, 1, first, tile, groups, a, lda, acc);
        break;
    default:
        for (int first = 0; first < 4; first++)
            tm_dot_quarters(4, 1, first, tile, groups, a, lda, acc);
        break;
    }
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, TM_MATMUL_BLOCK, micro); }

int tm_ternary_matmul_dotprod(void *args) { return tm_matmul_run(args, body, TM_RANK(dotprod)); }

TM_END
#endif
