/* i2s_quantize with AVX-512; the loop is in steps/avx512.h.
 *
 * Limit: 4 bytes read and 1 written an element; in L2 the comparisons. Codes larger than L2 are written around the
 * caches, or every line of them would be read before it is written.
 *
 * Rates: `tritmark run --suite speed --op i2s_quantize`. Versions and what lost: docs/kernels/quantizers.md. */
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
