/* ternary_matmul of tile64 with the dot products of Armv8.2 (sdot): the nested masks of avx512.c, with the same bound
 * on a chunk, on quarters of a group, 4 of each 16 rows.
 *
 * Limit: for each 16 bytes 1 load, 3 ands, 1 shift, and for each row of activations 4 sdot. These take four activations
 * from a lane of the 16 that were loaded, so nothing is broadcast. Not measured. */
#include "tiles.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(dotprod)
#include "tiles_dotprod.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_dotprod(void *args) { return tm_matmul_run(args, body, TM_RANK(dotprod)); }

TM_END
#endif
