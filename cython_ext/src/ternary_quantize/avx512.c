/* ternary_quantize with AVX-512.
 *
 * Algorithm: a group of 128 floats stays in registers from the maximum to the packed bytes, without masks (`beyond`,
 * `quarter`). Maxima are folded in narrower vectors as soon as they fit. Floats are prefetched 512 bytes ahead. Outputs
 * past the caches are written around them, in 16-byte stores, to which NumPy's arrays are aligned.
 *
 * Limit: from memory, reading; in the caches, the vector instructions.
 *
 * Rates: `tritmark run --suite speed --op ternary_quantize`. Versions and what lost: docs/kernels/quantizers.md. */
#include "ymm.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)

static inline __m128i codes16(__m512 x_f32x16, __m512 half_f32x16, __m512 minus_f32x16)
{
    __m128i above_i8x16 = _mm_movm_epi8(_mm512_cmp_ps_mask(x_f32x16, half_f32x16, _CMP_GT_OQ));
    __m128i below_i8x16 = _mm_movm_epi8(_mm512_cmp_ps_mask(x_f32x16, minus_f32x16, _CMP_LT_OQ));
    return _mm_sub_epi8(below_i8x16, above_i8x16);
}

static void codes(const float *x, size_t n, float half, int8_t *codes, int stream)
{
    const __m512 half_f32x16 = _mm512_set1_ps(half), minus_f32x16 = _mm512_set1_ps(-half);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m128i low_i8x16 = codes16(_mm512_loadu_ps(x + i), half_f32x16, minus_f32x16);
        __m128i high_i8x16 = codes16(_mm512_loadu_ps(x + i + 16), half_f32x16, minus_f32x16);
        tm_put32(codes + i, _mm256_set_m128i(high_i8x16, low_i8x16), stream);
    }
    for (; i < n; i += 16) {
        __mmask16 lanes = tm_lanes16(n - i);
        _mm_mask_storeu_epi8(codes + i, lanes, codes16(_mm512_maskz_loadu_ps(lanes, x + i), half_f32x16, minus_f32x16));
    }
}

static const tm_ternary_steps steps = {tm_absmax_avx512, codes, tm_pack_ymm};

/* The fused path: floats to packed bytes in registers, for blocks of 32, 64 and multiples of 128. */

typedef struct group {
    __m512 x[8];
} group;

static inline group load(const float *x)
{
    group g;
    for (size_t j = 0; j < 8; j++)
        g.x[j] = _mm512_loadu_ps(x + 16 * j);
    return g;
}

static inline __m512i doubled(__m512 x_f32x16)
{
    return _mm512_add_epi32(_mm512_castps_si512(x_f32x16), _mm512_castps_si512(x_f32x16));
}

static inline __m512i quarter_largest(const group *g, size_t j)
{
    return _mm512_max_epu32(doubled(g->x[2 * j]), doubled(g->x[2 * j + 1]));
}

/* x minus x clamped to +-half: above zero, +0 or below zero if x is above half, within, or below -half. The rounding
 * mode is explicit: a thread that rounds down would get -0, whose bits are a negative integer. */
static inline __m512 beyond(__m512 x_f32x16, __m512 half_f32x16)
{
    /* the smaller magnitude, with the sign of x */
    const __m512 clamped_f32x16 = _mm512_range_ps(x_f32x16, half_f32x16, 2);
    return _mm512_sub_round_ps(x_f32x16, clamped_f32x16, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Quarter j of a group, 32 floats, as 32 int16 of -weight, 0 or weight, in the order of packs. The bits of the
 * differences saturate to -32768, 0 and 32767, and a rounding product with weight / 32768 gives the weight. */
static inline __m512i quarter(const group *g, size_t j, __m512 half_f32x16, short weight)
{
    const __m512 low_f32x16 = beyond(g->x[2 * j], half_f32x16), high_f32x16 = beyond(g->x[2 * j + 1], half_f32x16);
    __m512i sign_i16x32 = _mm512_packs_epi32(_mm512_castps_si512(low_f32x16), _mm512_castps_si512(high_f32x16));
    return _mm512_mulhrs_epi16(sign_i16x32, _mm512_set1_epi16(weight));
}

static inline void put(
    const group *g, __m512 half0, __m512 half1, __m512 half2, __m512 half3, uint8_t *packed, int stream)
{
    __m512i high_i16x32 = _mm512_add_epi16(quarter(g, 0, half0, 64), quarter(g, 1, half1, 16));
    __m512i low_i16x32 = _mm512_add_epi16(quarter(g, 2, half2, 4), quarter(g, 3, half3, 1));
    __m512i sum_i16x32 = _mm512_add_epi16(_mm512_add_epi16(high_i16x32, low_i16x32), _mm512_set1_epi16(TM_ZERO_CODES));
    sum_i16x32 = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), sum_i16x32);
    tm_put32(packed, _mm512_cvtepi16_epi8(sum_i16x32), stream);
}

static inline __m256i fold256(__m512i a_u32x16)
{
    return _mm256_max_epu32(_mm512_castsi512_si256(a_u32x16), _mm512_extracti64x4_epi64(a_u32x16, 1));
}

/* Both halves of `a` in the lower half of the result, both of `b` in the upper. */
static inline __m256i fold128(__m256i a_u32x8, __m256i b_u32x8)
{
    return _mm256_max_epu32(
        _mm256_permute2x128_si256(a_u32x8, b_u32x8, 0x20), _mm256_permute2x128_si256(a_u32x8, b_u32x8, 0x31));
}

/* One group of blocks of 32, 64 or 128; returns doubled bits with the group's largest among them. */
static inline __attribute__((always_inline)) __m256i
small_group(const float *x, size_t block, float *scales, uint8_t *packed, int stream)
{
    const __m256i least_u32x8 = _mm256_set1_epi32((int32_t)tm_doubled_least());
    for (size_t j = 0; j < TM_GROUP; j += 16)
        tm_prefetch_ahead(x + j);
    const group g = load(x);
    __m512i a_u32x16 = quarter_largest(&g, 0), b_u32x16 = quarter_largest(&g, 1);
    __m512i c_u32x16 = quarter_largest(&g, 2), d_u32x16 = quarter_largest(&g, 3);
    __m256i largest_u32x8;
    if (block == 32) {
        __m256i ab_u32x8 = fold128(fold256(a_u32x16), fold256(b_u32x16)),
                cd_u32x8 = fold128(fold256(c_u32x16), fold256(d_u32x16));
        largest_u32x8 =
            _mm256_max_epu32(_mm256_unpacklo_epi64(ab_u32x8, cd_u32x8), _mm256_unpackhi_epi64(ab_u32x8, cd_u32x8));
    } else if (block == 64) {
        largest_u32x8 =
            fold128(fold256(_mm512_max_epu32(a_u32x16, b_u32x16)), fold256(_mm512_max_epu32(c_u32x16, d_u32x16)));
        largest_u32x8 = _mm256_max_epu32(largest_u32x8, _mm256_shuffle_epi32(largest_u32x8, 0x4e));
    } else {
        __m256i all_u32x8 =
            fold256(_mm512_max_epu32(_mm512_max_epu32(a_u32x16, b_u32x16), _mm512_max_epu32(c_u32x16, d_u32x16)));
        __m128i all_u32x4 = _mm_max_epu32(_mm256_castsi256_si128(all_u32x8), _mm256_extracti128_si256(all_u32x8, 1));
        largest_u32x8 = _mm256_castsi128_si256(_mm_max_epu32(all_u32x4, _mm_shuffle_epi32(all_u32x4, 0x4e)));
    }
    largest_u32x8 = _mm256_max_epu32(largest_u32x8, _mm256_shuffle_epi32(largest_u32x8, 0xb1));
    largest_u32x8 = _mm256_max_epu32(largest_u32x8, least_u32x8);
    /* Scales by block: at 32 0 0 2 2 1 1 3 3, at 64 0 0 0 0 1 1 1 1, at 128 0 0 0 0 and any value. */
    const __m256 scale_f32x8 = _mm256_castsi256_ps(_mm256_srli_epi32(largest_u32x8, 1));
    const __m512 half_f32x16 = _mm512_castps256_ps512(_mm256_mul_ps(scale_f32x8, _mm256_set1_ps(0.5f)));
    const __m512 first_f32x16 = _mm512_broadcastss_ps(_mm512_castps512_ps128(half_f32x16));
    const __m512 fifth_f32x16 = _mm512_permutexvar_ps(_mm512_set1_epi32(4), half_f32x16);
    if (block == 32) {
        const __m512 third_f32x16 = _mm512_permutexvar_ps(_mm512_set1_epi32(2), half_f32x16);
        const __m512 seventh_f32x16 = _mm512_permutexvar_ps(_mm512_set1_epi32(6), half_f32x16);
        _mm_storeu_ps(
            scales,
            _mm256_castps256_ps128(_mm256_permutevar8x32_ps(scale_f32x8, _mm256_setr_epi32(0, 4, 2, 6, 0, 4, 2, 6))));
        put(&g, first_f32x16, fifth_f32x16, third_f32x16, seventh_f32x16, packed, stream);
    } else if (block == 64) {
        _mm_store_ss(scales, _mm256_castps256_ps128(scale_f32x8));
        _mm_store_ss(scales + 1, _mm256_extractf128_ps(scale_f32x8, 1));
        put(&g, first_f32x16, first_f32x16, fifth_f32x16, fifth_f32x16, packed, stream);
    } else {
        _mm_store_ss(scales, _mm256_castps256_ps128(scale_f32x8));
        put(&g, first_f32x16, first_f32x16, first_f32x16, first_f32x16, packed, stream);
    }
    return block == 128 ? _mm256_zextsi128_si256(_mm256_castsi256_si128(largest_u32x8)) : largest_u32x8;
}

static inline __attribute__((always_inline)) uint32_t
small_blocks(tm_ternary_quantize_args *a, size_t begin, size_t end, size_t block, int stream)
{
    float *scales = a->scales + begin / block;
    __m256i overall_u32x8 = _mm256_setzero_si256();
    for (size_t i = begin; i < end; i += TM_GROUP, scales += TM_GROUP / block) {
        __m256i largest_u32x8 = small_group(a->x + i, block, scales, a->packed + i / TM_GROUP * TM_GROUP_BYTES, stream);
        overall_u32x8 = _mm256_max_epu32(overall_u32x8, largest_u32x8);
    }
    return _mm512_reduce_max_epu32(_mm512_zextsi256_si512(overall_u32x8));
}

/* Blocks of several groups: read once for the maximum, and again, from the caches if the block fits, for the codes. */
static uint32_t large_blocks(tm_ternary_quantize_args *a, size_t begin, size_t end, int stream)
{
    float *scales = a->scales + begin / a->block;
    uint32_t overall = 0;
    for (size_t i = begin; i < end; i += a->block) {
        uint32_t largest = tm_absmax_avx512(a->x + i, a->block);
        overall = largest > overall ? largest : overall;
        const __m512 half_f32x16 = _mm512_set1_ps(tm_ternary_half(largest, scales++));
        for (size_t j = i; j < i + a->block; j += TM_GROUP) {
            const group g = load(a->x + j);
            put(&g, half_f32x16, half_f32x16, half_f32x16, half_f32x16, a->packed + j / TM_GROUP * TM_GROUP_BYTES,
                stream);
        }
    }
    return overall;
}

/* Packs as many whole groups and blocks as there are from `begin`, if the fused path supports the block; returns the
 * number of elements. */
static size_t fused(tm_ternary_quantize_args *a, size_t begin, size_t end, uint32_t *overall)
{
    const int stream = tm_ternary_streams(a);
    const size_t unit = a->block < TM_GROUP ? TM_GROUP : a->block, whole = (end - begin) / unit * unit;
    if (a->block == 32)
        *overall = small_blocks(a, begin, begin + whole, 32, stream);
    else if (a->block == 64)
        *overall = small_blocks(a, begin, begin + whole, 64, stream);
    else if (a->block == TM_GROUP)
        *overall = small_blocks(a, begin, begin + whole, TM_GROUP, stream);
    else if (a->block % TM_GROUP == 0)
        *overall = large_blocks(a, begin, begin + whole, stream);
    else
        return 0;
    return whole;
}

static void body(void *args, size_t begin, size_t end)
{
    tm_ternary_quantize_args *a = args;
    uint32_t inner = 0;
    size_t done = a->packed ? fused(a, begin, end, &inner) : 0;
    uint32_t rest = tm_ternary_range(a, begin + done, end, &steps);
    tm_check_finite(&a->run, a->x, begin, end, inner > rest ? inner : rest);
    if (a->stream)
        _mm_sfence();
}

int tm_ternary_quantize_avx512(void *args) { return tm_ternary_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
