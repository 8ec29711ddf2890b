/* ternary_matmul of tile64 with AVX-VNNI, for processors with vpdpbusd and without AVX-512: the nested masks of
 * avx512.c, with the same bound on a chunk, on halves of a group as in avx2.c.
 *
 * Limit: for each 32 bytes 1 load, 3 ands, and for each row of activations 1 broadcast and 4 vpdpbusd. If two start in
 * each cycle, its latency of 5 cycles needs 10 sums. 16 registers hold only 8, beside masks, weights and activations.
 *
 * Rates: `python suites/performance/instruction_sets.py --sets avx2 avxvnni`. */
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
