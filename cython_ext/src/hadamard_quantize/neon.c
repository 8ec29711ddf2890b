/* hadamard_quantize with NEON: sixteen vectors of 4 in registers, so a block of 1024 takes two passes. In a vector a
 * shuffle brings each number its partner, and a multiply-add by 1 or -1, whose product is exact, adds or subtracts. Page:
 * docs/kernels/hadamard_quantize.md. */
#include "hadamard_quantize.h"

#if TM_ARM
#include "../intrinsics.h"

TM_BEGIN(neon)

typedef float32x4_t vector;
enum { LANES = 4, GROUP = 16 };
static inline __attribute__((always_inline)) vector add(vector a, vector b) { return vaddq_f32(a, b); }
static inline __attribute__((always_inline)) vector sub(vector a, vector b) { return vsubq_f32(a, b); }
static inline __attribute__((always_inline)) vector load(const float *y) { return vld1q_f32(y); }
static inline __attribute__((always_inline)) void store(float *y, vector v) { vst1q_f32(y, v); }

#include "passes.h"

/* Four numbers as floats. */
static inline __attribute__((always_inline)) float32x4_t widened4(const void *x, size_t i, const int32_t input)
{
    if (input == TM_FLOAT32)
        return vld1q_f32((const float *)x + i);
    const uint16x4_t x_u16x4 = vld1_u16((const uint16_t *)x + i);
    return input == TM_FLOAT16 ? vcvt_f32_f16(vreinterpret_f16_u16(x_u16x4))
                               : vreinterpretq_f32_u32(vshll_n_u16(x_u16x4, 16));
}

/* Butterflies at distances 1 and 2. */
static inline __attribute__((always_inline)) float32x4_t within(float32x4_t v)
{
    const float32x4_t odd = {1.0f, -1.0f, 1.0f, -1.0f}, upper = {1.0f, 1.0f, -1.0f, -1.0f};
    v = vfmaq_f32(vrev64q_f32(v), v, odd);
    return vfmaq_f32(vextq_f32(v, v, 2), v, upper);
}

/* The first pass over a group: signs, and butterflies at distances below its 64 numbers. */
static inline __attribute__((always_inline)) void first(
    const void *x, const int8_t *signs, float *y, size_t at, const int32_t input)
{
    vector v[GROUP];
    for (int i = 0; i < GROUP; i += 4) {
        const size_t from = at + (size_t)i * LANES;
        const int8x16_t signs_i8x16 = vld1q_s8(signs + from);
        const int16x8_t low_i16x8 = vmovl_s8(vget_low_s8(signs_i8x16)), high_i16x8 = vmovl_high_s8(signs_i8x16);
        const int32x4_t signs_i32x4[] = {
            vmovl_s16(vget_low_s16(low_i16x8)), vmovl_high_s16(low_i16x8), vmovl_s16(vget_low_s16(high_i16x8)),
            vmovl_high_s16(high_i16x8)};
        for (int k = 0; k < 4; k++)
            v[i + k] = within(vmulq_f32(widened4(x, from + (size_t)k * LANES, input), vcvtq_f32_s32(signs_i32x4[k])));
    }
    across(v, GROUP);
#pragma GCC unroll 16
    for (int i = 0; i < GROUP; i++)
        store(y + at + (size_t)i * LANES, v[i]);
}

/* The last butterflies, the factor and the maximum. */
static inline __attribute__((always_inline)) uint32x4_t
last(float *y, const size_t apart, const int n, const float factor)
{
    uint32x4_t largest_u32x4 = vdupq_n_u32(0);
    for (size_t at = 0; at < apart; at += LANES) {
        vector v[GROUP];
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            v[i] = load(y + at + (size_t)i * apart);
        across(v, n);
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) {
            v[i] = vmulq_n_f32(v[i], factor);
            largest_u32x4 = vmaxq_u32(largest_u32x4, vshlq_n_u32(vreinterpretq_u32_f32(v[i]), 1));
            store(y + at + (size_t)i * apart, v[i]);
        }
    }
    return largest_u32x4;
}

static inline __attribute__((always_inline)) uint32_t
rotate(const void *x, const int8_t *signs, float *y, size_t block, const int32_t input)
{
    const float factor = tm_hadamard_factor(block);
    for (size_t at = 0; at < block; at += GROUP * LANES)
        first(x, signs, y, at, input);
    uint32x4_t largest_u32x4;
    switch (block) {
    case 64: largest_u32x4 = last(y, 64, 1, factor); break;
    case 128: largest_u32x4 = last(y, 64, 2, factor); break;
    case 256: largest_u32x4 = last(y, 64, 4, factor); break;
    case 512: largest_u32x4 = last(y, 64, 8, factor); break;
    default: largest_u32x4 = last(y, 64, 16, factor);
    }
    return vmaxvq_u32(largest_u32x4);
}

static inline int16x8_t rounded8(const float *y, const float scale)
{
    const int32x4_t low_i32x4 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(y), scale));
    const int32x4_t high_i32x4 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(y + 4), scale));
    return vuzp1q_s16(vreinterpretq_s16_s32(low_i32x4), vreinterpretq_s16_s32(high_i32x4));
}

static int32_t codes(const float *y, size_t n, float scale, int8_t *q)
{
    int32x4_t sum_i32x4 = vdupq_n_s32(0);
    for (size_t i = 0; i < n; i += 16) {
        const int8x16_t low_i8x16 = vreinterpretq_s8_s16(rounded8(y + i, scale));
        const int8x16_t q_i8x16 = vuzp1q_s8(low_i8x16, vreinterpretq_s8_s16(rounded8(y + i + 8, scale)));
        vst1q_s8(q + i, q_i8x16);
        sum_i32x4 = vpadalq_s16(sum_i32x4, vpaddlq_s8(q_i8x16));
    }
    return vaddvq_s32(sum_i32x4);
}

/* To nearest even; a NaN becomes the quiet one. */
static inline uint16x4_t bfloats4(float32x4_t v)
{
    const uint32x4_t bits_u32x4 = vreinterpretq_u32_f32(v), one_u32x4 = vdupq_n_u32(1);
    const uint32x4_t odd_u32x4 = vandq_u32(vshrq_n_u32(bits_u32x4, 16), one_u32x4);
    const uint32x4_t up_u32x4 = vaddq_u32(vaddq_u32(bits_u32x4, vdupq_n_u32(0x7fff)), odd_u32x4);
    return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up_u32x4, vdupq_n_u32(0x7fc00000)), 16);
}

static void narrow(const float *y, size_t n, uint16_t *out, const int32_t output)
{
    for (size_t i = 0; i < n; i += 8) {
        const float32x4_t low = vld1q_f32(y + i), high = vld1q_f32(y + i + 4);
        const uint16x8_t narrowed = output == TM_FLOAT16
                                        ? vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high))
                                        : vcombine_u16(bfloats4(low), bfloats4(high));
        vst1q_u16(out + i, narrowed);
    }
}

TM_HADAMARD_BODY(rotate, codes, narrow)

int tm_hadamard_quantize_neon(void *args) { return tm_hadamard_run(args, body, TM_RANK(neon)); }

TM_END
#endif
