/* rms_norm, whose loops the compiler turns into AVX-512 code. */
#include "rms_norm.h"

#if TM_X86
TM_BEGIN(avx512)

static void body(void *args, size_t begin, size_t end) { tm_norm_rows(args, begin, end); }

int tm_rms_norm_avx512(void *args) { return tm_norm_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
