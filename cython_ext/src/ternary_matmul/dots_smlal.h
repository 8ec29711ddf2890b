/* Sums of products with NEON of every aarch64 processor. Included behind TM_BEGIN; dots_sdot.h is its replacement.
 *
 * Eight int16 lanes. For each 16 codes a lane gets two products, of at most 3 * 128 in magnitude, so the 80 products of
 * TM_DOTS_COLUMNS codes stay within 30720. */
#ifndef TM_DOTS_SMLAL_H
#define TM_DOTS_SMLAL_H

enum { TM_DOTS_COLUMNS = 640 };

typedef int16x8_t tm_dots;

static inline __attribute__((always_inline)) tm_dots tm_dots_added(tm_dots s, uint8x16_t codes, int8x16_t x)
{
    const int8x16_t c = vreinterpretq_s8_u8(codes);
    return vmlal_high_s8(vmlal_s8(s, vget_low_s8(c), vget_low_s8(x)), c, x);
}

/* Four lanes of int32. */
static inline __attribute__((always_inline)) int32x4_t tm_dots_sum(tm_dots s) { return vpaddlq_s16(s); }

#endif
