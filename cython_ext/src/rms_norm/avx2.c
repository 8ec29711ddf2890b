/* rms_norm, whose loops the compiler turns into AVX2 code. */
#include "rms_norm.h"

#if TM_X86
TM_BEGIN(avx2)

static void body(void *args, size_t begin, size_t end) { tm_norm_rows(args, begin, end); }

int tm_rms_norm_avx2(void *args) { return tm_norm_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
