/* activation_quantize with SSE4.1: 16 codes a step. */
#include "activation_quantize.h"

#if TM_X86
#include "../intrinsics.h"
#include "largest16.h"

TM_BEGIN(sse41)

static inline __attribute__((always_inline)) __m128 load4(const void *x, size_t i, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return _mm_loadu_ps((const float *)x + i);
    if (input == TM_FLOAT16) /* SSE4.1 has no conversion */
        return _mm_setr_ps(
            tm_input_at(x, i, input), tm_input_at(x, i + 1, input), tm_input_at(x, i + 2, input),
            tm_input_at(x, i + 3, input));
    __m128i x_u16x4 = _mm_loadl_epi64((const __m128i *)((const uint16_t *)x + i));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), x_u16x4));
}

/* The first `n` of 4 lanes, at least 1; the others are 0. */
static inline __attribute__((always_inline)) __m128 load_lanes(const void *x, size_t i, size_t n, enum tm_input input)
{
    if (n >= 4)
        return load4(x, i, input);
    if (input == TM_FLOAT32)
        return _mm_castsi128_ps(tm_first3_sse41((const float *)x + i, n));
    const uint64_t few = tm_few16_low((const uint16_t *)x + i, n);
    if (input == TM_BFLOAT16)
        return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_cvtsi64_si128((int64_t)few)));
    return _mm_setr_ps(tm_half((uint16_t)few), tm_half((uint16_t)(few >> 16)), tm_half((uint16_t)(few >> 32)), 0);
}

static inline __attribute__((always_inline)) __m128i
rounded4(const void *x, size_t i, enum tm_input input, __m128 scale_f32x4)
{
    return _mm_cvtps_epi32(_mm_mul_ps(load4(x, i, input), scale_f32x4));
}

static inline uint16_t largest16(const uint16_t *x, size_t n) { return tm_rest16(x, n, _mm_setzero_si128()); }

static inline __attribute__((always_inline)) int32_t
codes(const void *x, size_t n, float scale, int8_t *q, enum tm_input input)
{
    const __m128 scale_f32x4 = _mm_set1_ps(scale);
    const __m128i ones_i8x16 = _mm_set1_epi8(1), ones_i16x8 = _mm_set1_epi16(1);
    __m128i sum_i32x4 = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i low_i16x8 = _mm_packs_epi32(rounded4(x, i, input, scale_f32x4), rounded4(x, i + 4, input, scale_f32x4));
        __m128i high_i16x8 =
            _mm_packs_epi32(rounded4(x, i + 8, input, scale_f32x4), rounded4(x, i + 12, input, scale_f32x4));
        __m128i q_i8x16 = _mm_packs_epi16(low_i16x8, high_i16x8);
        _mm_storeu_si128((__m128i *)(q + i), q_i8x16);
        __m128i pairs_i16x8 = _mm_maddubs_epi16(ones_i8x16, q_i8x16);
        sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_madd_epi16(pairs_i16x8, ones_i16x8));
    }
    for (; i < n; i += 4) {
        const size_t count = n - i < 4 ? n - i : 4;
        const __m128i q_i32x4 = _mm_cvtps_epi32(_mm_mul_ps(load_lanes(x, i, count, input), scale_f32x4));
        sum_i32x4 = _mm_add_epi32(sum_i32x4, q_i32x4);
        const __m128i q_i16x8 = _mm_packs_epi32(q_i32x4, q_i32x4);
        tm_store_codes(q + i, (uint32_t)_mm_cvtsi128_si32(_mm_packs_epi16(q_i16x8, q_i16x8)), count);
    }
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4);
}

TM_ACTIVATION_BODY(tm_absmax_sse41, largest16, codes)

int tm_activation_quantize_sse41(void *args) { return tm_activation_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
