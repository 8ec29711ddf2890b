/* activation_quantize with AVX-512: by row scale = 127 / max(absmax, 1e-5), q = rint(x * scale) with saturation, and
 * the sum of q. Both passes take 64 floats at a time. */
#include <immintrin.h>
#include <stdint.h>

#define FAST __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define INLINE FAST static inline __attribute__((always_inline))

/* The bits of |x|, which order like the numbers; infinity and NaN have the largest. */
INLINE __m512i magnitude(__m512 x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }

INLINE __m512i quantized(__m512 x, __m512 scale) { return _mm512_cvtps_epi32(_mm512_mul_ps(x, scale)); }

INLINE __mmask16 left(int64_t count) { return count >= 16 ? 0xffff : count > 0 ? (__mmask16)((1u << count) - 1) : 0; }

/* 64 codes of four vectors, in order. */
INLINE __m512i packed(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i codes = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    return _mm512_permutexvar_epi32(order, codes);
}

/* `stride`: elements from one row of x to the next. `bad` holds -1: leave the index of the first NaN or infinity
 * there. */
FAST void activation_quantize(
    const float *x, int64_t stride, int8_t *q, float *scale, int32_t *sum, int64_t M, int64_t K, int64_t *bad)
{
    const int64_t whole = K & -64, rest = K - whole;
    const __mmask16 tail[4] = {left(rest), left(rest - 16), left(rest - 32), left(rest - 48)};
    const __mmask64 bytes = rest ? ~0ull >> (64 - rest) : 0;
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * stride;
        __m512i most[4];
        for (int i = 0; i < 4; i++)
            most[i] = magnitude(_mm512_maskz_loadu_ps(tail[i], row + whole + 16 * i));
        for (int64_t k = 0; k < whole; k += 64)
            for (int i = 0; i < 4; i++)
                most[i] = _mm512_max_epi32(most[i], magnitude(_mm512_loadu_ps(row + k + 16 * i)));
        const __m512i both = _mm512_max_epi32(_mm512_max_epi32(most[0], most[1]), _mm512_max_epi32(most[2], most[3]));
        const union {
            int32_t bits;
            float value;
        } largest = {_mm512_reduce_max_epi32(both)};
        if (largest.bits >= 0x7f800000 && *bad < 0)
            for (int64_t k = 0; k < K && *bad < 0; k++)
                if (!(__builtin_fabsf(row[k]) < __builtin_inff()))
                    *bad = m * K + k;
        scale[m] = 127.0f / (largest.value > 1e-5f ? largest.value : 1e-5f);
        const __m512 by = _mm512_set1_ps(scale[m]);
        const __m512i ones = _mm512_set1_epi8(1);
        int8_t *out = q + m * K;
        __m512i total = _mm512_setzero_si512(), v[4];
        for (int64_t k = 0; k < whole; k += 64) {
            for (int i = 0; i < 4; i++)
                v[i] = quantized(_mm512_loadu_ps(row + k + 16 * i), by);
            const __m512i codes = packed(v[0], v[1], v[2], v[3]);
            total = _mm512_dpbusd_epi32(total, ones, codes);
            _mm512_storeu_si512(out + k, codes);
        }
        if (rest) {
            for (int i = 0; i < 4; i++)
                v[i] = quantized(_mm512_maskz_loadu_ps(tail[i], row + whole + 16 * i), by);
            const __m512i codes = packed(v[0], v[1], v[2], v[3]);
            total = _mm512_dpbusd_epi32(total, ones, codes);
            _mm512_mask_storeu_epi8(out + whole, bytes, codes);
        }
        sum[m] = _mm512_reduce_add_epi32(total);
    }
}
