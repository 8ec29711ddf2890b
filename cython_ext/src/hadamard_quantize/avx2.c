/* hadamard_quantize with AVX2: eight vectors of 8 in registers. In a vector a shuffle brings each number its partner, and
 * a flipped sign makes the addition a subtraction. Page: docs/kernels/hadamard_quantize.md. */
#include "hadamard_quantize.h"

#if TM_X86
#include "../absmax_x86.h"
#include "../intrinsics.h"

TM_BEGIN(avx2)

typedef __m256 vector;
enum { LANES = 8, GROUP = 8 };
static inline __attribute__((always_inline)) vector add(vector a, vector b) { return _mm256_add_ps(a, b); }
static inline __attribute__((always_inline)) vector sub(vector a, vector b) { return _mm256_sub_ps(a, b); }
static inline __attribute__((always_inline)) vector load(const float *y) { return _mm256_loadu_ps(y); }
static inline __attribute__((always_inline)) void store(float *y, vector v) { _mm256_storeu_ps(y, v); }

#include "passes.h"

static inline
    __attribute__((always_inline)) __m256 signed8(const void *x, const int8_t *signs, size_t i, const int32_t input)
{
    __m256 x_f32x8;
    if (input == TM_FLOAT32) {
        x_f32x8 = _mm256_loadu_ps((const float *)x + i);
    } else {
        const __m128i x_u16x8 = _mm_loadu_si128((const __m128i *)((const uint16_t *)x + i));
        x_f32x8 = input == TM_FLOAT16 ? _mm256_cvtph_ps(x_u16x8)
                                      : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x_u16x8), 16));
    }
    const __m256i signs_i32x8 = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(signs + i)));
    return _mm256_mul_ps(x_f32x8, _mm256_cvtepi32_ps(signs_i32x8));
}

/* Butterflies at distances 1, 2 and 4. */
static inline __attribute__((always_inline)) __m256 within(__m256 v)
{
    const __m256 odd = _mm256_castsi256_ps(_mm256_set1_epi64x((int64_t)0x8000000000000000ull));
    const __m256 upper2 = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    const __m256 upper4 = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xb1), _mm256_xor_ps(v, odd));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4e), _mm256_xor_ps(v, upper2));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 0x01), _mm256_xor_ps(v, upper4));
}

/* The last butterflies, the factor and the maximum. */
static inline __attribute__((always_inline)) __m256i
last(float *y, const size_t apart, const int n, __m256 factor_f32x8)
{
    __m256i largest_u32x8 = _mm256_setzero_si256();
    for (size_t at = 0; at < apart; at += LANES) {
        vector v[GROUP];
        for (int i = 0; i < n; i++)
            v[i] = load(y + at + (size_t)i * apart);
        across(v, n);
        for (int i = 0; i < n; i++) {
            v[i] = _mm256_mul_ps(v[i], factor_f32x8);
            largest_u32x8 = tm_doubled_larger_avx2(largest_u32x8, _mm256_castps_si256(v[i]));
            store(y + at + (size_t)i * apart, v[i]);
        }
    }
    return largest_u32x8;
}

static inline __attribute__((always_inline)) uint32_t
rotate(const void *x, const int8_t *signs, float *y, size_t block, const int32_t input)
{
    for (size_t at = 0; at < block; at += GROUP * LANES) {
        vector v[GROUP];
        for (int i = 0; i < GROUP; i++)
            v[i] = within(signed8(x, signs, at + (size_t)i * LANES, input));
        across(v, GROUP);
        for (int i = 0; i < GROUP; i++)
            store(y + at + (size_t)i * LANES, v[i]);
    }
    const __m256 factor_f32x8 = _mm256_set1_ps(tm_hadamard_factor(block));
    __m256i largest_u32x8;
    switch (block) {
    case 64: largest_u32x8 = last(y, 64, 1, factor_f32x8); break;
    case 128: largest_u32x8 = last(y, 64, 2, factor_f32x8); break;
    case 256: largest_u32x8 = last(y, 64, 4, factor_f32x8); break;
    case 512: largest_u32x8 = last(y, 64, 8, factor_f32x8); break;
    default:
        between(y, 64, 8);
        between(y + 512, 64, 8);
        largest_u32x8 = last(y, 512, 2, factor_f32x8);
    }
    return tm_highest_sse41(
        _mm_max_epu32(_mm256_castsi256_si128(largest_u32x8), _mm256_extracti128_si256(largest_u32x8, 1)));
}

static inline __m256i rounded8(const float *y, __m256 scale_f32x8)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(y), scale_f32x8));
}

static int32_t codes(const float *y, size_t n, float scale, int8_t *q)
{
    const __m256 scale_f32x8 = _mm256_set1_ps(scale);
    const __m256i ones_i8x32 = _mm256_set1_epi8(1), ones_i16x16 = _mm256_set1_epi16(1);
    /* Packs work within 16-byte lanes; this restores the order of their 4-byte pieces. */
    const __m256i order_i32x8 = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i sum_i32x8 = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 32) {
        const __m256i low_i16x16 = _mm256_packs_epi32(rounded8(y + i, scale_f32x8), rounded8(y + i + 8, scale_f32x8));
        const __m256i high_i16x16 =
            _mm256_packs_epi32(rounded8(y + i + 16, scale_f32x8), rounded8(y + i + 24, scale_f32x8));
        const __m256i q_i8x32 = _mm256_packs_epi16(low_i16x16, high_i16x16);
        _mm256_storeu_si256((__m256i *)(q + i), _mm256_permutevar8x32_epi32(q_i8x32, order_i32x8));
        const __m256i pairs_i16x16 = _mm256_maddubs_epi16(ones_i8x32, q_i8x32);
        sum_i32x8 = _mm256_add_epi32(sum_i32x8, _mm256_madd_epi16(pairs_i16x16, ones_i16x16));
    }
    __m128i sum_i32x4 = _mm_add_epi32(_mm256_castsi256_si128(sum_i32x8), _mm256_extracti128_si256(sum_i32x8, 1));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0x4e));
    sum_i32x4 = _mm_add_epi32(sum_i32x4, _mm_shuffle_epi32(sum_i32x4, 0xb1));
    return _mm_cvtsi128_si32(sum_i32x4);
}

/* To nearest even; a NaN becomes the quiet one. */
static inline __m256i bfloats8(__m256 v)
{
    const __m256i bits_u32x8 = _mm256_castps_si256(v), one_u32x8 = _mm256_set1_epi32(1);
    const __m256i odd_u32x8 = _mm256_and_si256(_mm256_srli_epi32(bits_u32x8, 16), one_u32x8);
    const __m256i up_u32x8 = _mm256_add_epi32(_mm256_add_epi32(bits_u32x8, _mm256_set1_epi32(0x7fff)), odd_u32x8);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(up_u32x8, 16), _mm256_set1_epi32(0x7fc0), nan);
}

static void narrow(const float *y, size_t n, uint16_t *out, const int32_t output)
{
    for (size_t i = 0; i < n; i += 16) {
        const __m256 low = _mm256_loadu_ps(y + i), high = _mm256_loadu_ps(y + i + 8);
        if (output == TM_FLOAT16) {
            _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
            _mm_storeu_si128((__m128i *)(out + i + 8), _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
        } else {
            const __m256i both = _mm256_packus_epi32(bfloats8(low), bfloats8(high));
            _mm256_storeu_si256((__m256i *)(out + i), _mm256_permute4x64_epi64(both, 0xd8));
        }
    }
}

TM_HADAMARD_BODY(rotate, codes, narrow)

int tm_hadamard_quantize_avx2(void *args) { return tm_hadamard_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
