/* The probes with AVX-VNNI: those of AVX2, except for the dot products: 32 multiply-adds an instruction. */
#include "ceilings.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avxvnni)

#include "ymm.h"

typedef uint32_t lane;

static inline vec dot(vec sum_i32x8, vec a_u8x32, vec b_i8x32)
{
    __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum_i32x8) : "x"(a_u8x32), "x"(b_i8x32));
    return sum_i32x8;
}

#include "loops.h"

int tm_probe_avxvnni(void *args) { return tm_probe_run(args, bodies, TM_RANK(avxvnni)); }

TM_END
#endif
