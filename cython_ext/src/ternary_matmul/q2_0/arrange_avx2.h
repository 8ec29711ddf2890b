/* Shared by the instruction sets for q2_0. Included behind TM_BEGIN, and compiled for the including file's instruction
 * set, which defines TM_Q2_0_FEW: most rows of activations that do not meet groups one by one. */
#ifndef TM_Q2_0_ARRANGE_AVX2_H
#define TM_Q2_0_ARRANGE_AVX2_H

/* Puts rows [begin, end) of the activations in the order of q2_0.h. */
static void tm_q2_0_arrange_rows(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const size_t padded = tm_q2_0_padded(args->K), span = args->M <= TM_Q2_0_FEW ? TM_Q2_0_BLOCK : TM_Q2_0_GROUP;
    for (size_t m = begin; m < end; m++) {
        const int8_t *x = args->a + m * args->lda;
        int8_t *to = tm_q2_0_arranged(args, m);
        if (padded > args->K)
            memset(to + padded - TM_Q2_0_BLOCK, 0, TM_Q2_0_BLOCK);
        for (size_t k = 0; k < args->K; k += 16) {
            int32_t fours[4];
            _mm_storeu_si128((__m128i *)fours, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(x + k)), order));
            int8_t *at = to + k / span * span + k % span / 4;
            for (size_t s = 0; s < 4; s++)
                memcpy(at + span / 4 * s, fours + s, sizeof fours[0]);
        }
    }
}

static void tm_q2_0_arrange(tm_ternary_matmul_args *args)
{
    tm_parallel(args->M, 1, TM_PANEL_GRAIN / args->K + 1, args->run.threads, tm_q2_0_arrange_rows, args);
}

/* (p0 + p1) + (p2 + p3) */
static inline double tm_q2_0_summed(__m256d p)
{
    const __m128d low = _mm256_castpd256_pd128(p), high = _mm256_extractf128_pd(p, 1);
    const __m128d pairs = _mm_add_pd(_mm_unpacklo_pd(low, high), _mm_unpackhi_pd(low, high));
    return _mm_cvtsd_f64(_mm_add_sd(pairs, _mm_unpackhi_pd(pairs, pairs)));
}

#endif
