/* ternary_matmul of iq2_bn_r4 with NEON of every aarch64 processor: for each 16 codes a shift, an and, smlal and
 * smlal2, by four activations that are broadcast (dup). A lane of int16 has one column of a row and a product for each
 * field of 16 bytes, so 80 products, of at most 3 * 128 in magnitude, stay within 30720. */
#include "iq2_bn_r4.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)

enum { TM_FOURS_AT_ONCE = 2, TM_FOURS_ROWS = 2, TM_FOURS_COLUMNS = 80 / 4 * 16 };

typedef struct tm_four_sums {
    int16x8_t low, high; /* rows 0 and 1, rows 2 and 3 */
} tm_four_sums;

static inline __attribute__((always_inline)) tm_four_sums added(tm_four_sums s, int8x16_t codes, int8x16_t x)
{
    return (tm_four_sums){vmlal_s8(s.low, vget_low_s8(codes), vget_low_s8(x)), vmlal_high_s8(s.high, codes, x)};
}

#define TM_FOUR_ADDED(s, codes, x, lane) \
    added(s, codes, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane)))

static inline int32x4_t tm_four_sum(tm_four_sums s) { return vpaddq_s32(vpaddlq_s16(s.low), vpaddlq_s16(s.high)); }

#include "iq2_bn_r4_neon.h"

int tm_ternary_matmul_iq2_bn_r4_neon(void *args)
{
    return tm_matmul_run_by(args, TM_FOUR, tm_fours_body, TM_RANK(neon));
}

TM_END
#endif
