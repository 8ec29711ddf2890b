/* activation_quantize with SSE4.1: 16 codes a step. */
#include "activation_quantize.h"

#if TM_X86
TM_BEGIN(sse41)

static inline __m128i rounded4(const float *x, __m128 scale_f32x4)
{
    return _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x), scale_f32x4));
}

static int32_t codes(const float *x, size_t n, float scale, int8_t *q)
{
    const __m128 scale_f32x4 = _mm_set1_ps(scale);
    const __m128i ones_i8x16 = _mm_set1_epi8(1), ones_i16x8 = _mm_set1_epi16(1);
    __m128i sum_i32x4 = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i low_i16x8 = _mm_packs_epi32(rounded4(x + i, scale_f32x4), rounded4(x + i + 4, scale_f32x4));
        __m128i high_i16x8 = _mm_packs_epi32(rounded4(x + i + 8, scale_f32x4), rounded4(x + i + 12, scale_f32x4));
        __m128i q_i8x16 = _mm_packs_epi16(low_i16x8, high_i16x8);
        _mm_storeu_si128((__m128i *)(q + i), q_i8x16);
        __m128i pairs_i16x8 = _mm_maddubs_epi16(ones_i8x16, q_i8x16);
        sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_madd_epi16(pairs_i16x8, ones_i16x8));
    }
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4) + tm_activation_plain(x + i, n - i, scale, q + i);
}

static const tm_activation_steps steps = {tm_absmax_sse41, codes};

static void body(void *args, size_t begin, size_t end) { tm_activation_rows(args, begin, end, &steps); }

int tm_activation_quantize_sse41(void *args) { return tm_activation_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
