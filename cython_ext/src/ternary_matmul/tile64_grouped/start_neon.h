/* What the kernels of aarch64 share. Included behind TM_BEGIN. */
#ifndef TM_GROUPED_START_NEON_H
#define TM_GROUPED_START_NEON_H

enum { TM_GROUPED_SUMS = 4 };

/* See start_nested.h; the highest field is shifted down, so it is not nested. */
static inline void tm_grouped_start(const int8_t *x, size_t weights, int32_t *to)
{
    const int32_t sum = -tm_sum(x, weights);
    to[0] = to[3] = sum;
    to[1] = 5 * sum;
    to[2] = 21 * sum;
}

/* The scales of 4 rows of weights from row r. */
static inline __attribute__((always_inline)) float32x4_t tm_grouped_scales(const uint8_t *scales, int r)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(scales + 2 * r)));
}

/* Adds the scaled parts of 4 rows of weights to their sums: two roundings, no fused product. */
static inline __attribute__((always_inline)) void tm_grouped_settle(float *sums, float32x4_t scales, int32x4_t parts)
{
    const float32x4_t product = vmulq_f32(scales, vcvtq_f32_s32(parts));
    vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), product));
}

#endif
