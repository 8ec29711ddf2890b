/* The probes with NEON and the dot products of Armv8.2: 16 multiply-adds an instruction. */
#include "ceilings.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(dotprod)

#include "neon.h"

typedef uint32_t lane;

static inline vec dot(vec sum_u32x4, vec a_u8x16, vec b_u8x16)
{
    return vreinterpretq_u8_u32(vdotq_u32(vreinterpretq_u32_u8(sum_u32x4), a_u8x16, b_u8x16));
}

#include "loops.h"

int tm_probe_dotprod(void *args) { return tm_probe_run(args, bodies, TM_RANK(dotprod)); }

TM_END
#endif
