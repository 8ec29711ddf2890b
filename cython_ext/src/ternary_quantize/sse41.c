/* ternary_quantize with SSE4.1: 16 codes a step. Comparisons give -1 if true, so q is their difference. */
#include "ternary_quantize.h"

#if TM_X86
#include "../intrinsics.h"
#include "../absmax_x86.h"

TM_BEGIN(sse41)

static inline void put(void *to, __m128i bytes_u8x16, int stream)
{
    if (stream)
        _mm_stream_si128(to, bytes_u8x16);
    else
        _mm_storeu_si128(to, bytes_u8x16);
}

static inline __m128i coded4(__m128 x_f32x4, __m128 half_f32x4, __m128 minus_f32x4)
{
    __m128i above_i32x4 = _mm_castps_si128(_mm_cmpgt_ps(x_f32x4, half_f32x4));
    __m128i below_i32x4 = _mm_castps_si128(_mm_cmplt_ps(x_f32x4, minus_f32x4));
    return _mm_sub_epi32(below_i32x4, above_i32x4);
}

static inline __m128i codes4(const float *x, __m128 half_f32x4, __m128 minus_f32x4)
{
    return coded4(_mm_loadu_ps(x), half_f32x4, minus_f32x4);
}

static void codes(const float *x, size_t n, float half, int8_t *codes, int stream)
{
    const __m128 half_f32x4 = _mm_set1_ps(half), minus_f32x4 = _mm_set1_ps(-half);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i a_i16x8 =
            _mm_packs_epi32(codes4(x + i, half_f32x4, minus_f32x4), codes4(x + i + 4, half_f32x4, minus_f32x4));
        __m128i b_i16x8 =
            _mm_packs_epi32(codes4(x + i + 8, half_f32x4, minus_f32x4), codes4(x + i + 12, half_f32x4, minus_f32x4));
        put(codes + i, _mm_packs_epi16(a_i16x8, b_i16x8), stream);
    }
    for (; i < n; i += 4) {
        const size_t count = n - i < 4 ? n - i : 4;
        const __m128 x_f32x4 = count < 4 ? _mm_castsi128_ps(tm_first3_sse41(x + i, count)) : _mm_loadu_ps(x + i);
        const __m128i q_i32x4 = coded4(x_f32x4, half_f32x4, minus_f32x4), q_i16x8 = _mm_packs_epi32(q_i32x4, q_i32x4);
        tm_store_codes(codes + i, (uint32_t)_mm_cvtsi128_si32(_mm_packs_epi16(q_i16x8, q_i16x8)), count);
    }
}

static inline __m128i times4(__m128i x_i8x16)
{
    __m128i twice_i8x16 = _mm_add_epi8(x_i8x16, x_i8x16);
    return _mm_add_epi8(twice_i8x16, twice_i8x16);
}

static void pack(const int8_t *codes, uint8_t *packed, int stream)
{
    for (size_t i = 0; i < TM_GROUP_BYTES; i += 16) {
        __m128i sum_i8x16 = _mm_loadu_si128((const __m128i *)(codes + i));
        for (size_t j = 32; j < TM_GROUP; j += 32)
            sum_i8x16 = _mm_add_epi8(times4(sum_i8x16), _mm_loadu_si128((const __m128i *)(codes + i + j)));
        put(packed + i, _mm_add_epi8(sum_i8x16, _mm_set1_epi8(TM_ZERO_CODES)), stream);
    }
}

static const tm_ternary_steps steps = {tm_absmax_sse41, codes, pack};

static void body(void *args, size_t begin, size_t end)
{
    tm_ternary_quantize_args *a = args;
    tm_check_finite(&a->run, a->x, begin, end, tm_ternary_range(a, begin, end, &steps));
    if (a->stream)
        _mm_sfence();
}

int tm_ternary_quantize_sse41(void *args) { return tm_ternary_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
