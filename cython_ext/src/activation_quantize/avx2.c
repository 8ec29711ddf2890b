/* activation_quantize with AVX2: 32 codes a step, then 8; few.h handles the rest, because a loop over single numbers is
 * mispredicted and can take longer than plain C. Page: docs/kernels/quantizers.md. */
#include "activation_quantize.h"

#if TM_X86
#include "../intrinsics.h"
#include "largest16.h"

TM_BEGIN(avx2)

static inline __attribute__((always_inline)) __m256 widened8(__m128i x_u16x8, enum tm_input input)
{
    return input == TM_FLOAT16 ? _mm256_cvtph_ps(x_u16x8)
                               : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x_u16x8), 16));
}

static inline __attribute__((always_inline)) __m256 load8(const void *x, size_t i, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return _mm256_loadu_ps((const float *)x + i);
    return widened8(_mm_loadu_si128((const __m128i *)((const uint16_t *)x + i)), input);
}

/* The first `n` of 8 lanes, at least 1; the others are 0. */
static inline __attribute__((always_inline)) __m256 load_lanes(const void *x, size_t i, size_t n, enum tm_input input)
{
    if (n >= 8)
        return load8(x, i, input);
    if (input == TM_FLOAT32)
        return _mm256_castsi256_ps(tm_first8_avx2((const float *)x + i, n));
    return widened8(tm_few16((const uint16_t *)x + i, n), input);
}

static inline __attribute__((always_inline)) __m256i
rounded8(const void *x, size_t i, enum tm_input input, __m256 scale_f32x8)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(load8(x, i, input), scale_f32x8));
}

static inline __m256i larger16(__m256i largest_u16x16, const uint16_t *x)
{
    __m256i x_u16x16 = _mm256_loadu_si256((const __m256i *)x);
    return _mm256_max_epu16(largest_u16x16, _mm256_add_epi16(x_u16x16, x_u16x16));
}

static uint16_t largest16(const uint16_t *x, size_t n)
{
    __m256i a_u16x16 = _mm256_setzero_si256(), b_u16x16 = a_u16x16;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a_u16x16 = larger16(a_u16x16, x + i);
        b_u16x16 = larger16(b_u16x16, x + i + 16);
    }
    a_u16x16 = _mm256_max_epu16(a_u16x16, b_u16x16);
    __m128i half_u16x8 = _mm_max_epu16(_mm256_castsi256_si128(a_u16x16), _mm256_extracti128_si256(a_u16x16, 1));
    return tm_rest16(x + i, n - i, half_u16x8);
}

static inline __attribute__((always_inline)) int32_t
codes(const void *x, size_t n, float scale, int8_t *q, enum tm_input input)
{
    const __m256 scale_f32x8 = _mm256_set1_ps(scale);
    const __m256i ones_i8x32 = _mm256_set1_epi8(1), ones_i16x16 = _mm256_set1_epi16(1);
    /* Packs work within 16-byte lanes; this restores the order of their 4-byte pieces. */
    const __m256i order_i32x8 = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i sum_i32x8 = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i low_i16x16 =
            _mm256_packs_epi32(rounded8(x, i, input, scale_f32x8), rounded8(x, i + 8, input, scale_f32x8));
        __m256i high_i16x16 =
            _mm256_packs_epi32(rounded8(x, i + 16, input, scale_f32x8), rounded8(x, i + 24, input, scale_f32x8));
        __m256i q_i8x32 = _mm256_packs_epi16(low_i16x16, high_i16x16);
        _mm256_storeu_si256((__m256i *)(q + i), _mm256_permutevar8x32_epi32(q_i8x32, order_i32x8));
        __m256i pairs_i16x16 = _mm256_maddubs_epi16(ones_i8x32, q_i8x32);
        sum_i32x8 = _mm256_add_epi32(sum_i32x8, _mm256_madd_epi16(pairs_i16x16, ones_i16x16));
    }
    for (; i < n; i += 8) {
        const size_t count = n - i < 8 ? n - i : 8;
        const __m256i q_i32x8 = _mm256_cvtps_epi32(_mm256_mul_ps(load_lanes(x, i, count, input), scale_f32x8));
        sum_i32x8 = _mm256_add_epi32(sum_i32x8, q_i32x8);
        const __m128i q_i16x8 = _mm_packs_epi32(_mm256_castsi256_si128(q_i32x8), _mm256_extracti128_si256(q_i32x8, 1));
        tm_store_codes(q + i, (uint64_t)_mm_cvtsi128_si64(_mm_packs_epi16(q_i16x8, q_i16x8)), count);
    }
    __m128i sum_i32x4 = _mm_add_epi32(_mm256_castsi256_si128(sum_i32x8), _mm256_extracti128_si256(sum_i32x8, 1));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4);
}

TM_ACTIVATION_BODY(tm_absmax_avx2, largest16, codes)

int tm_activation_quantize_avx2(void *args) { return tm_activation_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
