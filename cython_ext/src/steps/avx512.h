/* The steps with AVX-512: 64 elements an iteration. A comparison of 16 elements gives 16 mask bits; four of them make a
 * mask of 64 bytes. For every 256 bytes read: 8 comparisons (12 with code -2), 6 (9) joins of masks, 8 operations to
 * detect NaN and infinity.
 *
 * In the caches of Zen 4 avx2.h can be faster; from memory both are equal (`python suites/performance/selection.py`).
 * See docs/kernels/quantizers.md. */
#ifndef TM_STEPS_AVX512_H
#define TM_STEPS_AVX512_H

#include "steps.h"

typedef struct tm_steps_zmm {
    __m512i up, down, two; /* up is compared with signed bits; down and two with unsigned ones, sign included */
} tm_steps_zmm;

static inline __mmask64 tm_join(__mmask16 a, __mmask16 b, __mmask16 c, __mmask16 d)
{
    return _mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a));
}

static inline __attribute__((always_inline)) __m512i
tm_steps_64(const float *x, tm_steps_zmm s, enum tm_low low, __m512i *largest_u32x16)
{
    __m512i v[4];
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_loadu_si512(x + 16 * j);
        *largest_u32x16 = _mm512_max_epu32(*largest_u32x16, _mm512_add_epi32(v[j], v[j]));
    }
#define TM_COMPARE(compare, step) \
    _mm512_movm_epi8(tm_join(compare(v[0], step), compare(v[1], step), compare(v[2], step), compare(v[3], step)))
    __m512i q = _mm512_sub_epi8(TM_COMPARE(_mm512_cmpgt_epu32_mask, s.down), TM_COMPARE(_mm512_cmpgt_epi32_mask, s.up));
    if (low == TM_LOW_2)
        q = _mm512_add_epi8(q, TM_COMPARE(_mm512_cmpgt_epu32_mask, s.two));
#undef TM_COMPARE
    return q;
}

static inline __attribute__((always_inline)) uint32_t
tm_steps_avx512(const float *x, int8_t *q, size_t n, tm_steps steps, enum tm_low low, int stream)
{
    const tm_steps_zmm s = {
        _mm512_set1_epi32(steps.one), _mm512_set1_epi32(steps.one | (int32_t)TM_SIGN),
        _mm512_set1_epi32(steps.two | (int32_t)TM_SIGN)};
    __m512i largest_u32x16 = _mm512_setzero_si512();
    uint32_t ends = 0;
    size_t i = 0;
    if (stream) {
        i = tm_until_aligned(q, 1, 64, n);
        ends = tm_steps_plain(x, q, i, steps, low);
        for (; i + 64 <= n; i += 64)
            _mm512_stream_si512((void *)(q + i), tm_steps_64(x + i, s, low, &largest_u32x16));
        _mm_sfence();
    }
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(q + i, tm_steps_64(x + i, s, low, &largest_u32x16));
    uint32_t rest = tm_steps_plain(x + i, q + i, n - i, steps, low), inner = _mm512_reduce_max_epu32(largest_u32x16);
    ends = ends > rest ? ends : rest;
    return ends > inner ? ends : inner;
}

#endif
