/* ternary_matmul of tile64 with AVX-512 VNNI. The loops around it are in tiles.h.
 *
 * Layout: a byte w holds codes c0 + 4 c1 + 16 c2 + 64 c3 of four rows of weights; a group is 64 bytes.
 *
 * Algorithm: no code is shifted out. The nested masks w & 3, w & 15, w & 63 and w go into four vpdpbusd. The rows' sums
 * are the differences, taken once a chunk: A0 = U0, A1 = (U1 - U0) / 4, A2 = (U2 - U1) / 16, A3 = (U3 - U2) / 64. Sums
 * may wrap modulo 2^32. A difference is exact while |64 * A3| < 2^31, and |A3| <= 2 * 128 * 4 * groups, so for up to
 * 32767 groups; TM_MATMUL_CHUNK is 8192. One row of activations has two sets of sums, to hide the latency of vpdpbusd
 * (4 to 5 cycles).
 *
 * Limit: for each 64 bytes 1 load, 3 ands, and for each row of activations 1 broadcast and 4 vpdpbusd. On Intel, ands
 * use the ports of vpdpbusd, so six rows can reach 24/27 of its peak, four 16/19. One row: 7 instructions for 64 bytes
 * on two ports, so 3.5 cycles and 4/7 of the peak.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul --variant avx512`; one row: `python suites/performance/gemv.py
 * --shapes 640x2560 --threads 1`. Versions and what lost: docs/kernels/tile64_avx512.md. */
#include "tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)
#include "tiles_avx512.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_matmul_tiles(args, begin, end, TM_TILES_ROWS, tm_tiles_micro);
}

int tm_ternary_matmul_avx512(void *args) { return tm_matmul_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
