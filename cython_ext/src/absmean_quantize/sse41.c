/* absmean_quantize with SSE4.1: 8 sums of 2 lanes. Codes by steps/sse41.h. */
#include "absmean_quantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(sse41)

#include "../steps/sse41.h"

static inline void add(const float *x, size_t n, double *lanes)
{
    const __m128d sign_f64x2 = _mm_set1_pd(-0.0);
    __m128d sum_f64x2[8];
    for (size_t j = 0; j < 8; j++)
        sum_f64x2[j] = _mm_load_pd(lanes + 2 * j);
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 8; j++) {
            __m128d x_f64x2 = _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(x + i + 2 * j))));
            sum_f64x2[j] = _mm_add_pd(sum_f64x2[j], _mm_andnot_pd(sign_f64x2, x_f64x2));
        }
    for (size_t j = 0; j < 8; j++)
        _mm_store_pd(lanes + 2 * j, sum_f64x2[j]);
}

static inline void code(const float *x, int8_t *q, size_t n, tm_steps steps, int stream)
{
    tm_steps_sse41(x, q, n, steps, TM_LOW_1, stream);
}

static void sums(void *args, size_t begin, size_t end) { tm_absmean_sums(args, begin, end, add); }
static void codes(void *args, size_t begin, size_t end) { tm_absmean_codes(args, begin, end, code); }

int tm_absmean_quantize_sse41(void *args) { return tm_absmean_run(args, sums, codes, TM_RANK(sse41)); }

TM_END
#endif
