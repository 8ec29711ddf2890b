/* i2s_dequantize with AVX-512: 64 elements a step, 16-byte loads widened to 16 floats.
 *
 * Limit: 1 byte read and 4 written an element. Outputs larger than L2 are written around the caches; in L2 plain stores
 * are faster. They are also faster if L3 holds the output from one call to the next, which a kernel cannot know:
 * `tritmark tune variants --requirement throughput` finds it.
 *
 * Rates: `tritmark run --suite speed --op i2s_dequantize`. Versions and what lost: docs/kernels/quantizers.md. */
#include "i2s_dequantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)

static inline __m512 widen(const int8_t *q, __m512 scale_f32x16)
{
    __m512i q_i32x16 = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)q));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(q_i32x16), scale_f32x16);
}

static void body(void *args, size_t begin, size_t end)
{
    const tm_i2s_dequantize_args *a = args;
    const int8_t *q = a->q; /* read once, see i2s_dequantize.h */
    float *x = a->x;
    const __m512 scale_f32x16 = _mm512_set1_ps(a->scale);
    size_t i = begin;
    if (a->stream) {
        size_t lead = tm_until_aligned(x + i, sizeof(float), 64, end - i);
        tm_dequantize_plain(q + i, x + i, lead, a->scale);
        for (i += lead; i + 64 <= end; i += 64)
            for (size_t j = 0; j < 64; j += 16)
                _mm512_stream_ps(x + i + j, widen(q + i + j, scale_f32x16));
        _mm_sfence();
    }
    for (; i + 16 <= end; i += 16)
        _mm512_storeu_ps(x + i, widen(q + i, scale_f32x16));
    tm_dequantize_plain(q + i, x + i, end - i, a->scale);
}

int tm_i2s_dequantize_avx512(void *args) { return tm_i2s_dequantize_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
