/* i2s_dequantize with SSE4.1: 16 elements a step, 4-byte loads widened to 4 floats. Streams like avx512.c. */
#include "i2s_dequantize.h"

#include <string.h>

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(sse41)

static inline __m128 widen(const int8_t *q, __m128 scale_f32x4)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm_mul_ps(_mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four))), scale_f32x4);
}

static void body(void *args, size_t begin, size_t end)
{
    const tm_i2s_dequantize_args *a = args;
    const int8_t *q = a->q; /* read once, see i2s_dequantize.h */
    float *x = a->x;
    const __m128 scale_f32x4 = _mm_set1_ps(a->scale);
    size_t i = begin;
    if (a->stream) {
        size_t lead = tm_until_aligned(x + i, sizeof(float), 16, end - i);
        tm_dequantize_plain(q + i, x + i, lead, a->scale);
        for (i += lead; i + 16 <= end; i += 16)
            for (size_t j = 0; j < 16; j += 4)
                _mm_stream_ps(x + i + j, widen(q + i + j, scale_f32x4));
        _mm_sfence();
    }
    for (; i + 4 <= end; i += 4)
        _mm_storeu_ps(x + i, widen(q + i, scale_f32x4));
    tm_dequantize_plain(q + i, x + i, end - i, a->scale);
}

int tm_i2s_dequantize_sse41(void *args) { return tm_i2s_dequantize_run(args, body, TM_RANK(sse41)); }

TM_END
#endif
