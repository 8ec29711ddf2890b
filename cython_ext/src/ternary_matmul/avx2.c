/* ternary_matmul with AVX2: each code is shifted out and goes with its activations through maddubs into int16 sums.
 *
 * A maddubs adds at most 2 * 2 * 128 = 512 in magnitude, so 64 of them fit int16 (the lowest sum is exactly -32768,
 * the highest 32512); then pmaddwd by 1 moves them to int32. 32 bytes are half of a group: 8 of each 16 rows.
 *
 * Several rows of activations take two fields of a half at a time, in four passes over weights that stay in L1: for 32
 * bytes a load, 3 or 4 shifts and ands, and for each row a broadcast, 2 maddubs and 2 adds.
 *
 * Story (Intel Xeon, one thread, 640 x 2560, M = 16; share of the peak of maddubs and add by turns):
 *   v1  two rows, four fields: 7 shifts and ands for 16 others               0.65
 *   v2  five rows, two fields: 3.5 for 20; sums of a vector type of int16,
 *       without which GCC 12 spills: no vector on the stack in any loop      0.78
 *
 * One row (Zen 3, one thread, 2560 x 6912, 6912 x 2560 and 2560 x 2560, by turns, outside of the project): its loop inlined
 * among those for several takes 1.09 to 1.34 of the time of a function of its own in the caches, 1.03 to 1.09 from
 * memory. */
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
