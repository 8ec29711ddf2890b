/* ternary_matmul of tile64 with AVX2: each code is shifted out and multiplied by its activations with maddubs, into
 * int16 sums.
 *
 * Layout: 32 bytes are half of a group, 8 of each 16 rows.
 *
 * Algorithm: a maddubs adds at most 2 * 2 * 128 = 512 in magnitude, so 64 of them fit int16 (the lowest sum is exactly
 * -32768, the highest 32512). Then pmaddwd by 1 moves them to int32. Several rows of activations take two fields of a
 * half at a time, in four passes over weights that stay in L1.
 *
 * Limit: the vector ports. For 32 bytes a load, 3 or 4 shifts and ands, and for each row a broadcast, 2 maddubs, 2
 * adds.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx2`. Versions: docs/kernels/tile64_avx512.md. */
#include "tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)
#include "tiles_avx2.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_avx2(void *args) { return tm_matmul_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
