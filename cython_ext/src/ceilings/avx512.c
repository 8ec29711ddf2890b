/* The probes with AVX-512 and VNNI: one load a cache line, 64 multiply-adds an instruction. */
#include "ceilings.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)

#include "zmm.h"
#include "loops.h"

int tm_probe_avx512(void *args) { return tm_probe_run(args, bodies, TM_RANK(avx512)); }

TM_END
#endif
