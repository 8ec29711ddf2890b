/* Sums of products with the dot products of Armv8.2. Included behind TM_BEGIN instead of dots_smlal.h, which documents
 * the functions. An int32 lane holds the sum of a row of any legal length (ternary_matmul.h). */
#ifndef TM_DOTS_SDOT_H
#define TM_DOTS_SDOT_H

enum { TM_DOTS_COLUMNS = 1 << 23 };

typedef int32x4_t tm_dots;

static inline __attribute__((always_inline)) tm_dots tm_dots_added(tm_dots s, uint8x16_t codes, int8x16_t x)
{
    return vdotq_s32(s, vreinterpretq_s8_u8(codes), x);
}

static inline __attribute__((always_inline)) int32x4_t tm_dots_sum(tm_dots s) { return s; }

#endif
