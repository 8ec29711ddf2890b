/* A warp for 32 columns of the output, none of whose threads asks whether its column is there. */
#include <stdint.h>

extern "C" __global__ void gemm_past_row(
    const int8_t *activations, int64_t stride, const uint8_t *weights, float weight_scale, const float *act_scale,
    float *out, int64_t M, int64_t N, int64_t K)
{
    int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
#ifdef FIXED
    if (n >= N)
        return;
#endif
    const uint8_t *row = weights + (n < N ? n : 0) * ((K + 63) / 64 * 16);
    int sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += activations[m * stride + k] * ((row[k / 16 * 4 + k % 4] >> 2 * (k % 16 / 4) & 3) - 1);
    out[m * N + n] = __double2float_rn(__dmul_rn((double)sum, __ddiv_rn((double)weight_scale, (double)act_scale[m])));
}
