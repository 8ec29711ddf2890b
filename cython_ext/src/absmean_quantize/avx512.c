/* absmean_quantize with AVX-512: 2 sums of 8 lanes. Codes by steps/avx512.h.
 *
 * Limit: 4 bytes read and 1 written an element. The scale is known only after the last element, so a tensor larger than
 * the caches is read twice.
 *
 * Rates: `tritmark run --suite speed --op absmean_quantize`. Versions and what lost: docs/kernels/quantizers.md. */
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
