/* activation_quantize with AVX2: 32 codes a step. */
#include "activation_quantize.h"

#if TM_X86
TM_BEGIN(avx2)

static inline __m256i rounded8(const float *x, __m256 scale_f32x8)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale_f32x8));
}

static int32_t codes(const float *x, size_t n, float scale, int8_t *q)
{
    const __m256 scale_f32x8 = _mm256_set1_ps(scale);
    const __m256i ones_i8x32 = _mm256_set1_epi8(1), ones_i16x16 = _mm256_set1_epi16(1);
    /* The packs work within 16-byte lanes; this puts their 4-byte pieces back in order. */
    const __m256i order_i32x8 = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i sum_i32x8 = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i low_i16x16 = _mm256_packs_epi32(rounded8(x + i, scale_f32x8), rounded8(x + i + 8, scale_f32x8));
        __m256i high_i16x16 = _mm256_packs_epi32(rounded8(x + i + 16, scale_f32x8), rounded8(x + i + 24, scale_f32x8));
        __m256i q_i8x32 = _mm256_packs_epi16(low_i16x16, high_i16x16);
        _mm256_storeu_si256((__m256i *)(q + i), _mm256_permutevar8x32_epi32(q_i8x32, order_i32x8));
        __m256i pairs_i16x16 = _mm256_maddubs_epi16(ones_i8x32, q_i8x32);
        sum_i32x8 = _mm256_add_epi32(sum_i32x8, _mm256_madd_epi16(pairs_i16x16, ones_i16x16));
    }
    __m128i sum_i32x4 = _mm_add_epi32(_mm256_castsi256_si128(sum_i32x8), _mm256_extracti128_si256(sum_i32x8, 1));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4) + tm_activation_plain(x + i, n - i, scale, q + i);
}

static const tm_activation_steps steps = {tm_absmax_avx2, codes};

static void body(void *args, size_t begin, size_t end) { tm_activation_rows(args, begin, end, &steps); }

int tm_activation_quantize_avx2(void *args) { return tm_activation_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
