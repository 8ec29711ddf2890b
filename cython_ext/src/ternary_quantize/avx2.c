/* ternary_quantize with AVX2: 32 codes a step. Comparisons give -1 if true, so q is their difference. */
#include "ymm.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)

static inline __m256i coded8(__m256 x_f32x8, __m256 half_f32x8, __m256 minus_f32x8)
{
    __m256i above_i32x8 = _mm256_castps_si256(_mm256_cmp_ps(x_f32x8, half_f32x8, _CMP_GT_OQ));
    __m256i below_i32x8 = _mm256_castps_si256(_mm256_cmp_ps(x_f32x8, minus_f32x8, _CMP_LT_OQ));
    return _mm256_sub_epi32(below_i32x8, above_i32x8);
}

static inline __m256i codes8(const float *x, __m256 half_f32x8, __m256 minus_f32x8)
{
    return coded8(_mm256_loadu_ps(x), half_f32x8, minus_f32x8);
}

static void codes(const float *x, size_t n, float half, int8_t *codes, int stream)
{
    const __m256 half_f32x8 = _mm256_set1_ps(half), minus_f32x8 = _mm256_set1_ps(-half);
    /* Packs work within 16-byte lanes; this restores the order of their 4-byte pieces. */
    const __m256i order_i32x8 = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i a_i16x16 =
            _mm256_packs_epi32(codes8(x + i, half_f32x8, minus_f32x8), codes8(x + i + 8, half_f32x8, minus_f32x8));
        __m256i b_i16x16 = _mm256_packs_epi32(
            codes8(x + i + 16, half_f32x8, minus_f32x8), codes8(x + i + 24, half_f32x8, minus_f32x8));
        tm_put32(codes + i, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a_i16x16, b_i16x16), order_i32x8), stream);
    }
    for (; i < n; i += 8) {
        const size_t count = n - i < 8 ? n - i : 8;
        const __m256 x_f32x8 = count < 8 ? _mm256_castsi256_ps(tm_first8_avx2(x + i, count)) : _mm256_loadu_ps(x + i);
        const __m256i q_i32x8 = coded8(x_f32x8, half_f32x8, minus_f32x8);
        const __m128i q_i16x8 = _mm_packs_epi32(_mm256_castsi256_si128(q_i32x8), _mm256_extracti128_si256(q_i32x8, 1));
        tm_store_codes(codes + i, (uint64_t)_mm_cvtsi128_si64(_mm_packs_epi16(q_i16x8, q_i16x8)), count);
    }
}

static const tm_ternary_steps steps = {tm_absmax_avx2, codes, tm_pack_ymm};

static void body(void *args, size_t begin, size_t end)
{
    tm_ternary_quantize_args *a = args;
    tm_check_finite(&a->run, a->x, begin, end, tm_ternary_range(a, begin, end, &steps));
    if (a->stream)
        _mm_sfence();
}

int tm_ternary_quantize_avx2(void *args) { return tm_ternary_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
