/* A kernel of ternary_matmul_experts for row16, one output a thread: each row times the weights of its expert, times
 * weight_scale[e] / act_scale.
 *
 * Weight e of 16 is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4) of a little-endian word; rows are padded to
 * whole 64 weights. Behind the rows of an expert are 64 bytes with its scale. */

/* Rows offsets[e] to offsets[e + 1] belong to expert e. `stride`: elements from one row of activations to the next. */
extern "C" __global__ void gemm_experts_simple(
    const signed char *activations, long long stride, const unsigned char *weights, const float *weight_scale,
    const float *act_scale, const int *offsets, float *out, long long M, long long E, long long N, long long K)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= M * N)
        return;
    long long m = at / N, n = at % N, expert = 0;
    while (expert < E - 1 && offsets[expert + 1] <= m)
        expert++;
    long long row_bytes = (K + 63) / 64 * 16;
    const unsigned char *row = weights + expert * (N * row_bytes + 64) + n * row_bytes;
    int sum = 0;
    for (long long k = 0; k < K; k++) {
        int e = (int)(k % 16);
        sum += activations[m * stride + k] * ((row[k / 16 * 4 + e % 4] >> 2 * (e / 4) & 3) - 1);
    }
    double factor = __ddiv_rn((double)weight_scale[expert], (double)act_scale[m]);
    out[at] = __double2float_rn(__dmul_rn((double)sum, factor));
}
