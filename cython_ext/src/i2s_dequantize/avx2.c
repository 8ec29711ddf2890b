/* i2s_dequantize with AVX2: 32 elements a step, 8-byte loads widened to 8 floats. Streams like avx512.c. */
#include "i2s_dequantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)

static inline __m256 widen(const int8_t *q, __m256 scale_f32x8)
{
    __m256i q_i32x8 = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)q));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(q_i32x8), scale_f32x8);
}

static void body(void *args, size_t begin, size_t end)
{
    const tm_i2s_dequantize_args *a = args;
    const int8_t *q = a->q; /* read once, see i2s_dequantize.h */
    float *x = a->x;
    const __m256 scale_f32x8 = _mm256_set1_ps(a->scale);
    size_t i = begin;
    if (a->stream) {
        size_t lead = tm_until_aligned(x + i, sizeof(float), 32, end - i);
        tm_dequantize_plain(q + i, x + i, lead, a->scale);
        for (i += lead; i + 32 <= end; i += 32)
            for (size_t j = 0; j < 32; j += 8)
                _mm256_stream_ps(x + i + j, widen(q + i + j, scale_f32x8));
        _mm_sfence();
    }
    for (; i + 8 <= end; i += 8)
        _mm256_storeu_ps(x + i, widen(q + i, scale_f32x8));
    tm_dequantize_plain(q + i, x + i, end - i, a->scale);
}

int tm_i2s_dequantize_avx2(void *args) { return tm_i2s_dequantize_run(args, body, TM_RANK(avx2)); }

TM_END
#endif
