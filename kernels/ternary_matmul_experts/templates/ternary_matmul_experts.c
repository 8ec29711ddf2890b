/* A kernel of ternary_matmul_experts for tile64: each row times the weights of its expert, times weight_scale[e] /
 * act_scale.
 *
 * A tile is 64 rows; of each 4 columns it has 64 bytes: byte 4 * r + c holds column c of the rows r, r + 16, r + 32
 * and r + 48 in bits 0-1, 2-3, 4-5 and 6-7, as the field w + 1. Behind the tiles of an expert are 64 bytes with its
 * scale. */
#include <stdint.h>

static void one_row(const int8_t *row, const uint8_t *weights, double factor, float *out, int64_t N, int64_t K)
{
    int64_t groups = (K + 3) / 4;
    for (int64_t tile = 0; 64 * tile < N; tile++) {
        const uint8_t *packed = weights + tile * groups * 64;
        int32_t sums[4][64] = {{0}};
        for (int64_t group = 0; group < groups; group++) {
            int32_t x[64];
            for (int byte = 0; byte < 64; byte++) {
                int64_t k = 4 * group + byte % 4;
                x[byte] = k < K ? row[k] : 0;
            }
            for (int part = 0; part < 4; part++)
                for (int byte = 0; byte < 64; byte++)
                    sums[part][byte] += x[byte] * ((packed[64 * group + byte] >> 2 * part & 3) - 1);
        }
        for (int64_t n = 0; n < 64 && 64 * tile + n < N; n++) {
            const int32_t *four = &sums[n / 16][n % 16 * 4];
            out[64 * tile + n] = (float)((double)(four[0] + four[1] + four[2] + four[3]) * factor);
        }
    }
}

/* Rows offsets[e] to offsets[e + 1] belong to expert e. `stride`: elements from one row of activations to the next. */
void ternary_matmul_experts(
    const int8_t *activations, int64_t stride, const uint8_t *weights, const float *weight_scale,
    const float *act_scale, const int32_t *offsets, float *out, int64_t E, int64_t N, int64_t K)
{
    int64_t bytes = ((N + 63) / 64 * ((K + 3) / 4) + 1) * 64;
    for (int64_t e = 0; e < E; e++)
        for (int64_t m = offsets[e]; m < offsets[e + 1]; m++) {
            double factor = (double)weight_scale[e] / (double)act_scale[m];
            one_row(activations + m * stride, weights + e * bytes, factor, out + m * N, N, K);
        }
}
