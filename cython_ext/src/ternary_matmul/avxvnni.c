/* ternary_matmul with AVX-VNNI, for processors with vpdpbusd and without AVX-512: the nested masks of avx512.c, whose
 * bound on a chunk holds here too, on halves of a group as in avx2.c: 8 of each 16 rows.
 *
 * For each 32 bytes: 1 load, 3 ands, and for each row of activations 1 broadcast and 4 vpdpbusd. Its latency of 5
 * cycles takes 10 sums to hide where two begin a cycle; the 8 here, with masks, weights and activations, are what 16
 * registers hold. */
#include "tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avxvnni)
#include "tiles_avxvnni.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_avxvnni(void *args) { return tm_matmul_run(args, body, TM_RANK(avxvnni)); }

TM_END
#endif
