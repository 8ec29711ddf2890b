/* i2s_dequantize with AVX-512: 64 elements a step, 16-byte loads widened to 16 floats.
 *
 * Least traffic: 1 byte read and 4 written an element. Measured with 2^24 elements, cold, on a Zen 4 VM, in alternation
 * with a loop of non-temporal stores alone; a figure is x's bytes over time, as a share of that loop's rate:
 * v1, stores through the caches, so every line written is read first (9 bytes an element): 0.64 with 1 thread.
 * v2, stores around them where the output is larger than the L2: 0.85 with 1 thread; with 2, 0.96 to 0.99 of the
 *     fastest write probe
 * (`tritmark run --suite speed`, 2^21 elements).
 * v3, pointers read once: nothing where memory is the limit; hot, up to 17 % (i2s_dequantize.h).
 * Software prefetch of q 1, 4 or 16 KB ahead changed nothing. In L2 v1 is the faster: 1.43 against 0.51 of that
 * loop. So it is where the L3 holds an output larger than the L2 from one call to the next: there even scalar.c, which
 * writes through the caches, takes 0.67 of v3's time with 1 thread and 0.35 to 0.7 with 2, for a core writes 28 GB/s to
 * memory, and two wrote 55 or, at other times on the same machine, 28. A kernel cannot know that beforehand; `tritmark
 * select --requirement throughput` finds it, and from memory v3 is the faster with 1 thread (scalar.c: 1.07 to 1.2). */
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
