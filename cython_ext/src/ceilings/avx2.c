/* The probes with AVX2: two loads a cache line; dot products by maddubs into 16-bit lanes that wrap. */
#include "ceilings.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)

#include "ymm.h"

typedef uint16_t lane;

static inline vec dot(vec sum_i16x16, vec a_u8x32, vec b_i8x32)
{
    vec pairs_i16x16;
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                     : "+x"(sum_i16x16), "=&x"(pairs_i16x16)
                     : "x"(a_u8x32), "x"(b_i8x32));
    return sum_i16x16;
}

#include "loops.h"

int tm_probe_avx2(void *args) { return tm_probe_run(args, bodies, TM_RANK(avx2)); }

TM_END
#endif
