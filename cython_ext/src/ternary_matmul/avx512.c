/* ternary_matmul with AVX-512 VNNI.
 *
 * A byte w holds codes c0 + 4 c1 + 16 c2 + 64 c3 of four rows. Instead of shifting each out, the nested masks w & 3, w
 * & 15, w & 63 and w go into four vpdpbusd, and the rows' sums are the differences, taken once a chunk: A0 = U0, A1 =
 * (U1 - U0) / 4, A2 = (U2 - U1) / 16, A3 = (U3 - U2) / 64. Sums may wrap modulo 2^32; a difference is exact while |64 *
 * A3| < 2^31, and |A3| <= 2 * 128 * 4 * groups, so while groups <= 32767: TM_MATMUL_CHUNK is 8192.
 *
 * For each 64 bytes: 1 load, 3 ands, and for each row of activations 1 broadcast and 4 vpdpbusd. Ands go to the ports
 * of vpdpbusd on Intel, so six rows can reach 24/27 of its peak, four 16/19. One row of activations needs two sets of sums
 * to hide vpdpbusd's latency (4 to 5 cycles). The loops around are in tiles.h, with their own story.
 *
 * What stands here is what `tritmark run --suite speed` measures; the versions before it are gone, and their figures were
 * taken when they stood here.
 *
 * Story (GOP/s of one thread, hot, at 2560 x 2560, M = 60; share of a read of the same bytes from memory, two threads,
 * 2560 x 6912, M = 1):
 *   v1  nested masks, six rows at once, prefetch 4 KiB ahead into L2    Zen 4  242  0.66   Intel Xeon  450  0.91
 *       GCC 12 spills the sums in every step.
 *   v2  four rows at once: nothing spills, vpdpbusd is the limit        Zen 4  443  0.66   Intel Xeon  777  0.91
 *   v3  no prefetch on AMD, 8 KiB on Intel (ternary_matmul.h)           Zen 4  443  0.93   Intel Xeon  777  0.92
 *   v4  six rows at once: vpdpbusd in assembly and masks in memory, so that 24 sums, 4 weights and 1 broadcast fit;
 *       objdump shows no vector on the stack in any loop. Share of vpdpbusd's peak on an Intel Xeon, by turns, weights
 *       and activations in L2, M = 6: 0.49 with the intrinsic, which spills, 0.74 as it stands
 *
 * One row: for each 64 bytes 7 instructions on the two ports of vpdpbusd, so 3.5 cycles and 4/7 of its peak, whatever
 * the loads do: in L2 that is the limit (`python suites/performance/gemv.py --shapes 640x2560 --threads 1`). Story (time
 * over v4's by turns, hot, one thread, on an Intel Xeon while others kept it busy):
 *                                                                         64 x 64   200 x 310   333 x 111   640 x 2560
 *   v5  one settling of the sums, the last odd group with the others      0.97      0.96        0.94        1.01
 *   v6  vpdpbusd in assembly here too: 22 instructions for two groups
 *       in place of 38, of which 16 moved sums                            0.97      0.92        0.89        0.92
 *   v7  up to 24 rows are one slab without dividing (tiles.h)             0.79      0.88        0.87        0.93
 * On a quieter machine v4 took 7.9 us at 640 x 2560, which is 3.5 cycles at 2.85 GHz, so v6 has nothing to gain there:
 * moves need no port. They take room in front of them, which hyperthreads share.
 *
 * Tried, outside of the project, on Zen 4: look-up with VBMI in place of vpdpbusd, of which each goes once a cycle there. A byte
 * holds the codes of four columns in base 3, vpermi2b looks up 64 bytes in 128 entries, one time for each of two digits
 * (lut.h), 256 rows to a load of the tables, which stay in L1 for a stretch of K. Predicted: 2.7 cycles for 64 bytes, 4 by
 * vpdpbusd. Found, over this loop's time, one thread, in the caches: 1.08 to 1.17 with tables made beforehand, 1.22 to 1.60
 * with them at 768 x 2560 to 6912 x 2560. Where four columns' tables come from L2 for each 256 rows: 1.2 to 1.5. And on Intel's
 * cores a vpermi2b takes two cycles of the one port of shuffles (uops.info; not tried). */
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
