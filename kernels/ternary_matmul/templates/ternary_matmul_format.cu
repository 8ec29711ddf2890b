/* A kernel of ternary_matmul for @FORMAT@, one output a thread: out = activations * weights^T, times weight_scale
 * / act_scale.
 *
 * `code` reads one weight, `scale` what it stands for where the packed bytes have scales; all else is the same for
 * every format. */
#define DECODE static __device__ inline
#include "formats/@FORMAT@.h"

/* `stride`: elements from one row of activations to the next. */
extern "C" __global__ void gemm_simple(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= M * N)
        return;
    int64_t m = at / N, n = at % N, group = scale_columns(K);
    double total = 0;
    for (int64_t start = 0; start < K; start += group) {
        int32_t sum = 0;
        for (int64_t k = start; k < start + group; k++)
            sum += activations[m * stride + k] * code(weights, N, K, n, k);
        total = __dadd_rn(total, __dmul_rn(sum, scale(weights, N, K, n, start)));
    }
    out[at] = __double2float_rn(__dmul_rn(total, __ddiv_rn(weight_scale, act_scale[m])));
}
