/* The probes with NEON: dot products by widening multiply-adds into 16-bit lanes that wrap, 8 an instruction. */
#include "ceilings.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(neon)

#include "neon.h"

typedef uint16_t lane;

static inline vec dot(vec sum_u16x8, vec a_u8x16, vec b_u8x16)
{
    __asm__ volatile("umlal %0.8h, %1.8b, %2.8b\n\tumlal2 %0.8h, %1.16b, %2.16b"
                     : "+w"(sum_u16x8)
                     : "w"(a_u8x16), "w"(b_u8x16));
    return sum_u16x8;
}

#include "loops.h"

int tm_probe_neon(void *args) { return tm_probe_run(args, bodies, TM_RANK(neon)); }

TM_END
#endif
