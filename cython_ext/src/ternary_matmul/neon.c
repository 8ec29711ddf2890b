/* ternary_matmul of tile64 with NEON of every aarch64 processor: each code is shifted out and multiplied by its
 * activations into int16 sums (smlal, smlal2), a lane for each row and column of the group.
 *
 * Algorithm: a product is at most 2 * 128 in magnitude, so 128 of them fit int16 (the lowest sum is exactly -32768, the
 * highest 32512). Then the four columns of a row are added pairwise into int32 (saddlp, addp). 16 bytes are a quarter
 * of a group, 4 of each 16 rows; their sums take 8 of the 32 registers for each row of activations. */
#include "tiles.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(neon)
#include "tiles_neon.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_neon(void *args) { return tm_matmul_run(args, body, TM_RANK(neon)); }

TM_END
#endif
