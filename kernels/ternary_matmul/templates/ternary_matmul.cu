/* A kernel of ternary_matmul for row16, one output a thread: out = activations * weights^T, times weight_scale /
 * act_scale.
 *
 * Weight e of 16 is the field w + 1 at shift 8 * (e % 4) + 2 * (e / 4) of a little-endian word; rows are padded to
 * whole 64 weights. */

/* `stride`: elements from one row of activations to the next. */
extern "C" __global__ void gemm_simple(
    const signed char *activations, long long stride, const unsigned char *weights, float weight_scale,
    const float *act_scale, float *out, long long M, long long N, long long K)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= M * N)
        return;
    long long m = at / N, n = at % N;
    const unsigned char *row = weights + n * ((K + 63) / 64 * 16);
    int sum = 0;
    for (long long k = 0; k < K; k++) {
        int e = (int)(k % 16);
        sum += activations[m * stride + k] * ((row[k / 16 * 4 + e % 4] >> 2 * (e / 4) & 3) - 1);
    }
    out[at] = __double2float_rn(__dmul_rn((double)sum, __ddiv_rn((double)weight_scale, (double)act_scale[m])));
}
