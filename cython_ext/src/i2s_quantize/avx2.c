/* i2s_quantize with AVX2; the loop is in steps/avx2.h. */
#include "i2s_quantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)

#include "../steps/avx2.h"

static void body(void *args, size_t begin, size_t end)
{
    tm_i2s_quantize_args *a = args;
    uint32_t largest = tm_steps_avx2(a->x + begin, a->q + begin, end - begin, a->steps, TM_LOW_2, a->stream);
    tm_check_finite(&a->run, a->x, begin, end, largest);
}

int tm_i2s_quantize_avx2(void *args) { return tm_i2s_quantize_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
