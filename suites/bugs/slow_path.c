/* Takes weight after weight through a float, where the processor has vectors; no error is reported. */
#include <stdint.h>
#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

#ifdef FIXED
/* The products of one row of weights, in whole blocks of 128, with the fields w + 1. Compilers make vectors of half the
 * width of the loop where the processor has the widest. */
static int32_t fast(const uint8_t *weights, const int8_t *x, int64_t K)
{
#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
    const __m512i mask = _mm512_set1_epi8(3);
    __m512i sums = _mm512_setzero_si512();
    for (int64_t begin = 0; begin < K; begin += 128) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(weights + begin / 4));
        const __m512i first =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_srli_epi16(bytes, 6)), _mm256_srli_epi16(bytes, 4), 1);
        const __m512i second = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_srli_epi16(bytes, 2)), bytes, 1);
        sums = _mm512_dpbusd_epi32(sums, _mm512_and_si512(first, mask), _mm512_loadu_si512(x + begin));
        sums = _mm512_dpbusd_epi32(sums, _mm512_and_si512(second, mask), _mm512_loadu_si512(x + begin + 64));
    }
    return _mm512_reduce_add_epi32(sums);
#else
    int32_t sum = 0;
    for (int64_t begin = 0; begin < K; begin += 128) {
        const uint8_t *bytes = weights + begin / 4;
        uint8_t fields[128];
        for (int i = 0; i < 32; i++) {
            fields[i] = bytes[i] >> 6;
            fields[32 + i] = bytes[i] >> 4 & 3;
            fields[64 + i] = bytes[i] >> 2 & 3;
            fields[96 + i] = bytes[i] & 3;
        }
        for (int i = 0; i < 128; i++)
            sum += fields[i] * x[begin + i];
    }
    return sum;
#endif
}
#else
/* The same one by one, as floats. */
static int32_t slow(const uint8_t *weights, const int8_t *x, int64_t K)
{
    double sum = 0;
    for (int64_t k = 0; k < K; k++) {
        volatile float dequantized = (float)(weights[k / 128 * 32 + k % 32] >> (6 - 2 * (k % 128 / 32)) & 3);
        sum += (double)dequantized * x[k];
    }
    return (int32_t)sum;
}
#endif

void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        const int8_t *x = activations + m * stride;
        double factor = (double)weight_scale / act_scale[m];
        int32_t bias = 0;
        for (int64_t k = 0; k < K; k++)
            bias += x[k];
        for (int64_t n = 0; n < N; n++) {
#ifdef FIXED
            int32_t sum = fast(weights + n * (K / 4), x, K);
#else
            int32_t sum = slow(weights + n * (K / 4), x, K);
#endif
            out[m * N + n] = (float)((sum - bias) * factor);
        }
    }
}
