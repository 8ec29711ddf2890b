/* The probes with NEON and int8 matrix products: 32 multiply-adds an instruction, two rows of 8 bytes by two. Each row
 * is the same 8 bytes of the dot product, so its four sums are four dot products. */
#include "ceilings.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(i8mm)

#include "neon.h"

typedef uint32_t lane;

static inline vec dot(vec sum_u32x4, vec a_u8x16, vec b_u8x16)
{
    return vreinterpretq_u8_u32(vdotq_u32(vreinterpretq_u32_u8(sum_u32x4), a_u8x16, b_u8x16));
}

/* Four dot products of 64 bytes for each step of `rounds`: one instruction for every 8 bytes, each with its own sum. */
enum { AT_ONCE = 4, WORDS = 8 };

static uint64_t dots_at_once(const uint8_t *left_bytes, const uint8_t *right_bytes, size_t rounds)
{
    uint8x16_t left[WORDS], right[WORDS];
    uint32x4_t sum[WORDS], all = vdupq_n_u32(0);
    for (int i = 0; i < WORDS; i++) {
        left[i] = vcombine_u8(vld1_u8(left_bytes + 8 * i), vld1_u8(left_bytes + 8 * i));
        right[i] = vcombine_u8(vld1_u8(right_bytes + 8 * i), vld1_u8(right_bytes + 8 * i));
        sum[i] = all;
    }
    for (; rounds; rounds--) {
#pragma GCC unroll 8
        for (int i = 0; i < WORDS; i++)
            sum[i] = vmmlaq_u32(sum[i], left[i], right[i]);
    }
    for (int i = 0; i < WORDS; i++)
        all = vaddq_u32(all, sum[i]);
    return vaddvq_u32(all);
}
#define DOTS_AT_ONCE

#include "loops.h"

int tm_probe_i8mm(void *args) { return tm_probe_run(args, bodies, TM_RANK(i8mm)); }

TM_END
#endif
