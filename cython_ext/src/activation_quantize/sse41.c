/* activation_quantize with SSE4.1: 16 codes a step. */
#include "activation_quantize.h"

#if TM_X86
TM_BEGIN(sse41)

static inline __attribute__((always_inline)) __m128 load4(const void *x, size_t i, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return _mm_loadu_ps((const float *)x + i);
    if (input == TM_FLOAT16) /* the set has no conversion */
        return _mm_setr_ps(
            tm_input_at(x, i, input), tm_input_at(x, i + 1, input), tm_input_at(x, i + 2, input),
            tm_input_at(x, i + 3, input));
    __m128i x_u16x4 = _mm_loadl_epi64((const __m128i *)((const uint16_t *)x + i));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), x_u16x4));
}

static inline __attribute__((always_inline)) __m128i
rounded4(const void *x, size_t i, enum tm_input input, __m128 scale_f32x4)
{
    return _mm_cvtps_epi32(_mm_mul_ps(load4(x, i, input), scale_f32x4));
}

static uint16_t largest16(const uint16_t *x, size_t n)
{
    __m128i a_u16x8 = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i x_u16x8 = _mm_loadu_si128((const __m128i *)(x + i));
        a_u16x8 = _mm_max_epu16(a_u16x8, _mm_add_epi16(x_u16x8, x_u16x8));
    }
    return tm_largest16_plain(x + i, n - i, tm_highest16_sse41(a_u16x8));
}

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
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4) + tm_activation_plain(tm_input_from(x, i, input), n - i, scale, q + i, input);
}

TM_ACTIVATION_STEPS(tm_absmax_sse41, largest16, codes);

static void body(void *args, size_t begin, size_t end) { tm_activation_rows(args, begin, end, steps); }

int tm_activation_quantize_sse41(void *args) { return tm_activation_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
