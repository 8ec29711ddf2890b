/* Conversions of outputs, for kernels with AMX. Included between TM_BEGIN and TM_END. */
#ifndef TM_AMX_OUTPUTS_H
#define TM_AMX_OUTPUTS_H

static inline __m512 floats_of(__m512d low, __m512d high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}

/* Like tm_bfloat16. If weights have scales in their bytes, a NaN must not be rounded to a number. */
static inline __attribute__((always_inline)) __m256i bfloat16_of(__m512 values, const int scaled)
{
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    if (scaled)
        rounded = _mm512_mask_mov_epi32(
            rounded, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

#endif
