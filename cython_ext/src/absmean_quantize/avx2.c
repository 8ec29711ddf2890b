/* absmean_quantize with AVX2: 4 sums of 4 lanes. Codes by steps/avx2.h. */
#include "absmean_quantize.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(avx2)

#include "../steps/avx2.h"

static inline void add(const float *x, size_t n, double *lanes)
{
    const __m256d sign_f64x4 = _mm256_set1_pd(-0.0);
    __m256d sum_f64x4[4];
    for (size_t j = 0; j < 4; j++)
        sum_f64x4[j] = _mm256_load_pd(lanes + 4 * j);
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 4; j++) {
            __m256d x_f64x4 = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * j));
            sum_f64x4[j] = _mm256_add_pd(sum_f64x4[j], _mm256_andnot_pd(sign_f64x4, x_f64x4));
        }
    for (size_t j = 0; j < 4; j++)
        _mm256_store_pd(lanes + 4 * j, sum_f64x4[j]);
}

static inline void code(const float *x, int8_t *q, size_t n, tm_steps steps, int stream)
{
    tm_steps_avx2(x, q, n, steps, TM_LOW_1, stream);
}

static void sums(void *args, size_t begin, size_t end) { tm_absmean_sums(args, begin, end, add); }
static void codes(void *args, size_t begin, size_t end) { tm_absmean_codes(args, begin, end, code); }

int tm_absmean_quantize_avx2(void *args) { return tm_absmean_run(args, sums, codes, TM_RANK(avx2)); }

TM_END
#endif
