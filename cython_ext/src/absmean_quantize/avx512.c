/* absmean_quantize with AVX-512: 2 sums of 8 lanes; the codes are steps/avx512.h's.
 *
 * Least traffic: 4 bytes read and 1 written an element; but the scale is known only after the last element, so a tensor
 * past the caches is read twice. Measured with 2^24 elements that no cache holds, 2 threads of a 2-core Zen 4 VM with
 * 32 MiB of L3, in alternation with a plain read loop; a figure is x's bytes, once, over time, as a share of that
 * loop's rate:
 * v1, both passes forwards, codes written through the caches: 4200 us, 0.49.
 * v2, codes around the caches: 3900 us, 0.54.
 * v3, second pass backwards, so that it begins with what the L3 still holds: 3400 us, 0.60 (2^20 elements a call: 0.63
 *     to 0.68).
 * Software prefetch 2, 4 or 8 KB ahead changed nothing. */
#include "absmean_quantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx512)

#include "../steps/avx512.h"

static inline void add(const float *x, size_t n, double *lanes)
{
    __m512d low_f64x8 = _mm512_load_pd(lanes), high_f64x8 = _mm512_load_pd(lanes + 8);
    for (size_t i = 0; i < n; i += 16) {
        low_f64x8 = _mm512_add_pd(low_f64x8, _mm512_abs_pd(_mm512_cvtps_pd(_mm256_loadu_ps(x + i))));
        high_f64x8 = _mm512_add_pd(high_f64x8, _mm512_abs_pd(_mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8))));
    }
    _mm512_store_pd(lanes, low_f64x8);
    _mm512_store_pd(lanes + 8, high_f64x8);
}

static inline void code(const float *x, int8_t *q, size_t n, tm_steps steps, int stream)
{
    tm_steps_avx512(x, q, n, steps, TM_LOW_1, stream);
}

static void sums(void *args, size_t begin, size_t end) { tm_absmean_sums(args, begin, end, add); }
static void codes(void *args, size_t begin, size_t end) { tm_absmean_codes(args, begin, end, code); }

int tm_absmean_quantize_avx512(void *args) { return tm_absmean_run(args, sums, codes, TM_RANK(avx512)); }

TM_END
#endif
