/* activation_quantize with AVX-512: 64 codes a step. Saturating packs narrow them, and a dot product with ones adds
 * them up. Two passes, the second from L1.
 *
 * Rates: `tritmark run --suite speed --op activation_quantize`. Page: docs/kernels/quantizers.md. */
#include "activation_quantize.h"

#if TM_X86
#include "../intrinsics.h"
#include "largest16.h"

TM_BEGIN(avx512)

static inline __m512i rounded16(__m512 x_f32x16, __m512 scale_f32x16)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(x_f32x16, scale_f32x16));
}

static inline __attribute__((always_inline)) __m512 widened16(__m256i x_u16x16, enum tm_input input)
{
    return input == TM_FLOAT16 ? _mm512_cvtph_ps(x_u16x16)
                               : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x_u16x16), 16));
}

static inline __attribute__((always_inline)) __m512 load16(const void *x, size_t i, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return _mm512_loadu_ps((const float *)x + i);
    return widened16(_mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i)), input);
}

static inline __attribute__((always_inline)) __m512
load_lanes(const void *x, size_t i, __mmask16 lanes, enum tm_input input)
{
    if (input == TM_FLOAT32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)x + i);
    return widened16(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)x + i), input);
}

static inline __m512i larger16(__m512i largest_u16x32, __m512i x_u16x32)
{
    return _mm512_max_epu16(largest_u16x32, _mm512_add_epi16(x_u16x32, x_u16x32));
}

static uint16_t largest16(const uint16_t *x, size_t n)
{
    __m512i a_u16x32 = _mm512_setzero_si512(), b_u16x32 = a_u16x32;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        a_u16x32 = larger16(a_u16x32, _mm512_loadu_si512(x + i));
        b_u16x32 = larger16(b_u16x32, _mm512_loadu_si512(x + i + 32));
    }
    for (; i < n; i += 32) {
        const __mmask32 lanes = n - i < 32 ? (__mmask32)((1u << (n - i)) - 1) : (__mmask32)-1;
        a_u16x32 = larger16(a_u16x32, _mm512_maskz_loadu_epi16(lanes, x + i));
    }
    a_u16x32 = _mm512_max_epu16(a_u16x32, b_u16x32);
    __m256i half_u16x16 = _mm256_max_epu16(_mm512_castsi512_si256(a_u16x32), _mm512_extracti64x4_epi64(a_u16x32, 1));
    return tm_highest16_sse41(
        _mm_max_epu16(_mm256_castsi256_si128(half_u16x16), _mm256_extracti128_si256(half_u16x16, 1)));
}

static inline __attribute__((always_inline)) int32_t
codes(const void *x, size_t n, float scale, int8_t *q, enum tm_input input)
{
    const __m512 scale_f32x16 = _mm512_set1_ps(scale);
    const __m512i ones_i8x64 = _mm512_set1_epi8(1);
    /* Packs work within 16-byte lanes; this restores the order of their 4-byte pieces. */
    const __m512i order_i32x16 = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i sum_i32x16 = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i low_i16x32 = _mm512_packs_epi32(
            rounded16(load16(x, i, input), scale_f32x16), rounded16(load16(x, i + 16, input), scale_f32x16));
        __m512i high_i16x32 = _mm512_packs_epi32(
            rounded16(load16(x, i + 32, input), scale_f32x16), rounded16(load16(x, i + 48, input), scale_f32x16));
        __m512i q_i8x64 = _mm512_packs_epi16(low_i16x32, high_i16x32);
        _mm512_storeu_si512(q + i, _mm512_permutexvar_epi32(order_i32x16, q_i8x64));
        sum_i32x16 = _mm512_dpbusd_epi32(sum_i32x16, ones_i8x64, q_i8x64);
    }
    for (; i < n; i += 16) {
        __mmask16 lanes = tm_lanes16(n - i);
        __m512i q_i32x16 = rounded16(load_lanes(x, i, lanes, input), scale_f32x16);
        _mm512_mask_cvtsepi32_storeu_epi8(q + i, lanes, q_i32x16);
        sum_i32x16 = _mm512_add_epi32(sum_i32x16, q_i32x16);
    }
    return _mm512_reduce_add_epi32(sum_i32x16);
}

TM_ACTIVATION_BODY(tm_absmax_avx512, largest16, codes)

int tm_activation_quantize_avx512(void *args) { return tm_activation_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
