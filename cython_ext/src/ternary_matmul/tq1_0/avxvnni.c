/* ternary_matmul of tq1_0 with AVX-VNNI: like avx2.c, with one vpdpbusd for a maddubs and an addition. */
#include "tq1_0.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../dots_dpbusd.h"
#include "tq1_0_avx2.h"

int tm_ternary_matmul_tq1_0_avxvnni(void *args) { return tm_tq1_0_run(args, TM_RANK(avxvnni)); }

TM_END
#endif
