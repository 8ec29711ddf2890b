/* hadamard_quantize with AVX-512: eight vectors of 16 in registers. In a vector a shuffle brings each number its partner,
 * and a multiply-add by 1 or -1, whose product is exact, adds or subtracts. Page: docs/kernels/hadamard_quantize.md. */
#include "hadamard_quantize.h"

#if TM_X86
#include "../absmax_x86.h"
#include "../intrinsics.h"

TM_BEGIN(avx512)

typedef __m512 vector;
enum { LANES = 16, GROUP = 8 };
static inline __attribute__((always_inline)) vector add(vector a, vector b) { return _mm512_add_ps(a, b); }
static inline __attribute__((always_inline)) vector sub(vector a, vector b) { return _mm512_sub_ps(a, b); }
static inline __attribute__((always_inline)) vector load(const float *y) { return _mm512_loadu_ps(y); }
static inline __attribute__((always_inline)) void store(float *y, vector v) { _mm512_storeu_ps(y, v); }

#include "passes.h"

static inline
    __attribute__((always_inline)) __m512 signed16(const void *x, const int8_t *signs, size_t i, const int32_t input)
{
    __m512 x_f32x16;
    if (input == TM_FLOAT32) {
        x_f32x16 = _mm512_loadu_ps((const float *)x + i);
    } else {
        const __m256i x_u16x16 = _mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i));
        x_f32x16 = input == TM_FLOAT16 ? _mm512_cvtph_ps(x_u16x16)
                                       : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x_u16x16), 16));
    }
    const __m512i signs_i32x16 = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(signs + i)));
    return _mm512_mul_ps(x_f32x16, _mm512_cvtepi32_ps(signs_i32x16));
}

/* 1, and -1 in the lanes of the mask. */
static inline __attribute__((always_inline)) __m512 minus(const __mmask16 lanes)
{
    return _mm512_mask_blend_ps(lanes, _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f));
}

/* Butterflies at distances 1, 2, 4 and 8. */
static inline __attribute__((always_inline)) __m512 within(__m512 v)
{
    v = _mm512_fmadd_ps(v, minus(0xaaaa), _mm512_permute_ps(v, 0xb1));
    v = _mm512_fmadd_ps(v, minus(0xcccc), _mm512_permute_ps(v, 0x4e));
    v = _mm512_fmadd_ps(v, minus(0xf0f0), _mm512_shuffle_f32x4(v, v, 0xb1));
    return _mm512_fmadd_ps(v, minus(0xff00), _mm512_shuffle_f32x4(v, v, 0x4e));
}

/* The first pass over `n` vectors: signs, and butterflies at distances below n * LANES. */
static inline __attribute__((always_inline)) void first(
    const void *x, const int8_t *signs, float *y, size_t at, const int n, const int32_t input)
{
    vector v[GROUP];
    for (int i = 0; i < n; i++)
        v[i] = within(signed16(x, signs, at + (size_t)i * LANES, input));
    across(v, n);
    for (int i = 0; i < n; i++)
        store(y + at + (size_t)i * LANES, v[i]);
}

/* The last butterflies, the factor and the maximum. */
static inline __attribute__((always_inline)) __m512i
last(float *y, const size_t apart, const int n, __m512 factor_f32x16)
{
    __m512i largest_u32x16 = _mm512_setzero_si512();
    for (size_t at = 0; at < apart; at += LANES) {
        vector v[GROUP];
        for (int i = 0; i < n; i++)
            v[i] = load(y + at + (size_t)i * apart);
        across(v, n);
        for (int i = 0; i < n; i++) {
            v[i] = _mm512_mul_ps(v[i], factor_f32x16);
            largest_u32x16 = tm_larger_avx512(largest_u32x16, _mm512_castps_si512(v[i]));
            store(y + at + (size_t)i * apart, v[i]);
        }
    }
    return largest_u32x16;
}

static inline __attribute__((always_inline)) uint32_t
rotate(const void *x, const int8_t *signs, float *y, size_t block, const int32_t input)
{
    const __m512 factor_f32x16 = _mm512_set1_ps(tm_hadamard_factor(block));
    if (block == 64) {
        first(x, signs, y, 0, 4, input);
        return _mm512_reduce_max_epu32(last(y, 64, 1, factor_f32x16));
    }
    for (size_t at = 0; at < block; at += GROUP * LANES)
        first(x, signs, y, at, GROUP, input);
    __m512i largest_u32x16;
    switch (block) {
    case 128: largest_u32x16 = last(y, 128, 1, factor_f32x16); break;
    case 256: largest_u32x16 = last(y, 128, 2, factor_f32x16); break;
    case 512: largest_u32x16 = last(y, 128, 4, factor_f32x16); break;
    default: largest_u32x16 = last(y, 128, 8, factor_f32x16);
    }
    return _mm512_reduce_max_epu32(largest_u32x16);
}

static inline __m512i rounded16(const float *y, __m512 scale_f32x16)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(y), scale_f32x16));
}

static int32_t codes(const float *y, size_t n, float scale, int8_t *q)
{
    const __m512 scale_f32x16 = _mm512_set1_ps(scale);
    const __m512i ones_i8x64 = _mm512_set1_epi8(1);
    /* Packs work within 16-byte lanes; this restores the order of their 4-byte pieces. */
    const __m512i order_i32x16 = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i sum_i32x16 = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) {
        const __m512i low_i16x32 =
            _mm512_packs_epi32(rounded16(y + i, scale_f32x16), rounded16(y + i + 16, scale_f32x16));
        const __m512i high_i16x32 =
            _mm512_packs_epi32(rounded16(y + i + 32, scale_f32x16), rounded16(y + i + 48, scale_f32x16));
        const __m512i q_i8x64 = _mm512_packs_epi16(low_i16x32, high_i16x32);
        _mm512_storeu_si512(q + i, _mm512_permutexvar_epi32(order_i32x16, q_i8x64));
        sum_i32x16 = _mm512_dpbusd_epi32(sum_i32x16, ones_i8x64, q_i8x64);
    }
    return _mm512_reduce_add_epi32(sum_i32x16);
}

/* To nearest even; a NaN becomes the quiet one. */
static inline __m256i bfloats16(__m512 v)
{
    const __m512i bits_u32x16 = _mm512_castps_si512(v), one_u32x16 = _mm512_set1_epi32(1);
    const __m512i odd_u32x16 = _mm512_and_si512(_mm512_srli_epi32(bits_u32x16, 16), one_u32x16);
    const __m512i up_u32x16 = _mm512_add_epi32(_mm512_add_epi32(bits_u32x16, _mm512_set1_epi32(0x7fff)), odd_u32x16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(up_u32x16, 16), nan, _mm512_set1_epi32(0x7fc0)));
}

static void narrow(const float *y, size_t n, uint16_t *out, const int32_t output)
{
    for (size_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_loadu_ps(y + i);
        const __m256i narrowed = output == TM_FLOAT16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : bfloats16(v);
        _mm256_storeu_si256((__m256i *)(out + i), narrowed);
    }
}

TM_HADAMARD_BODY(rotate, codes, narrow)

int tm_hadamard_quantize_avx512(void *args) { return tm_hadamard_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
