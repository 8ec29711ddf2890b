/* Sums of products with AVX-VNNI. Included behind TM_BEGIN instead of dots_maddubs.h, which documents the functions. */
#ifndef TM_DOTS_DPBUSD_H
#define TM_DOTS_DPBUSD_H

typedef int32_t tm_dots __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) tm_dots tm_dots_added(tm_dots s, __m256i codes, __m256i x)
{
    return (tm_dots)_mm256_dpbusd_avx_epi32((__m256i)s, codes, x);
}

static inline __attribute__((always_inline)) __m256i tm_dots_sum(tm_dots s) { return (__m256i)s; }

static inline int32_t tm_dots_start(const int8_t *x, size_t weights) { return -tm_sum(x, weights); }

#endif
