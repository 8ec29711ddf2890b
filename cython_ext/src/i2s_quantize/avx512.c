/* i2s_quantize with AVX-512; the loop is in steps/avx512.h.
 *
 * Least traffic: 4 bytes read and 1 written an element. Measured with 2^24 elements that no cache holds, 2 threads of a
 * 2-core Zen 4 VM, in alternation with a plain read loop; a figure is x's bytes over time, as a share of that loop's
 * rate:
 * v1, stores through the caches, so every line of codes is read before it is written: 2402 us, 0.84.
 * v2, stores around them where the codes are larger than the L2: 2034 us, 1.00 (0.97 in calls of 2^20 elements; 0.68 to
 *     0.83 for v1).
 * Software prefetch 2, 4 or 8 KB ahead changed nothing. In L2 the comparisons are the limit: 43 GB/s a core, 0.44 of
 * reading. */
#include "i2s_quantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)

#include "../steps/avx512.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_i2s_quantize_args *a = args;
    uint32_t largest = tm_steps_avx512(a->x + begin, a->q + begin, end - begin, a->steps, TM_LOW_2, a->stream);
    tm_check_finite(&a->run, a->x, begin, end, largest);
}

int tm_i2s_quantize_avx512(void *args) { return tm_i2s_quantize_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
