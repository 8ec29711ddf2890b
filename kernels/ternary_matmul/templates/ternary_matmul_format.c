/* A kernel of ternary_matmul for @FORMAT@: out = activations * weights^T, times weight_scale / act_scale.
 *
 * `code` reads one weight, `scale` what it stands for where the packed bytes have scales; all else is the same for
 * every format. */
#define DECODE static inline
#include "formats/@FORMAT@.h"

/* Rows of activations for which a weight is read once. */
enum { ROWS = 16 };

/* `stride`: elements from one row of activations to the next. */
void ternary_matmul(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    int64_t group = scale_columns(K);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t begin = 0; begin < M; begin += ROWS) {
            int64_t rows = M - begin < ROWS ? M - begin : ROWS;
            const int8_t *some = activations + begin * stride;
            double totals[ROWS] = {0};
            for (int64_t start = 0; start < K; start += group) {
                int32_t sums[ROWS] = {0};
                for (int64_t k = start; k < start + group; k++) {
                    int32_t weight = code(weights, N, K, n, k);
                    for (int64_t m = 0; m < rows; m++)
                        sums[m] += some[m * stride + k] * weight;
                }
                double factor = scale(weights, N, K, n, start);
                for (int64_t m = 0; m < rows; m++)
                    totals[m] += sums[m] * factor;
            }
            for (int64_t m = 0; m < rows; m++)
                out[(begin + m) * N + n] = (float)(totals[m] * ((double)weight_scale / act_scale[begin + m]));
        }
    }
}
