/* ternary_matmul of tile64 with the int8 matrix products of Armv8.6 (usmmla): two rows of weights by two rows of
 * activations, 8 columns at once, twice the products of an sdot.
 *
 * Algorithm: a row's 8 columns lie in two groups, 4 bytes in each. Interleaving the groups' words (zip1, zip2) puts
 * them side by side. Then the nested masks of avx512.c, with the same bound on a chunk; usmmla takes unsigned weights,
 * so the last needs no mask. One row of activations would fill half of a usmmla, so it uses sdot.
 *
 * Limit: for 32 bytes, 4 of each 16 rows, 2 loads, 2 zips, 6 ands, and for each two rows of activations 2 loads and 8
 * usmmla. Not measured. */
#include "tiles.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(i8mm)
#include "tiles_i8mm.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_i8mm(void *args) { return tm_matmul_run(args, body, TM_RANK(i8mm)); }

TM_END
#endif
