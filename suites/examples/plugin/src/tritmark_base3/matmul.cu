/* ternary_matmul of base3 on a GPU: out = activations * weights^T, times weight_scale / act_scale. A warp an output.
 *
 * A lane takes every 32nd byte of a row of weights, so a warp reads 32 bytes next to one another; their digits are
 * divided out in registers. */
#define DIGITS 5
#define WARP 32
#define THREADS 128

/* kind 0 int32, 1 float32, 2 bfloat16 (the float32, rounded to nearest even). */
__device__ __forceinline__ void store(void *out, long long at, int sum, float weight_scale, float act_scale, int kind)
{
    if (kind == 0) {
        ((int *)out)[at] = sum;
        return;
    }
    const float value = __double2float_rn(__dmul_rn((double)sum, __ddiv_rn((double)weight_scale, (double)act_scale)));
    if (kind == 1) {
        ((float *)out)[at] = value;
        return;
    }
    const unsigned bits = __float_as_uint(value);
    ((unsigned short *)out)[at] = (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* grid: any number of blocks of THREADS; `stride`: bytes between rows of activations. */
extern "C" __global__ void __launch_bounds__(THREADS) base3_gpu_matmul(
    const signed char *__restrict__ activations, const unsigned char *__restrict__ weights,
    const float *__restrict__ act_scale, void *__restrict__ out, long long stride, float weight_scale, int M, int N,
    int K, int kind)
{
    const int lane = threadIdx.x % WARP;
    const long long row_bytes = (K + DIGITS - 1) / DIGITS, warps = (long long)gridDim.x * (THREADS / WARP);
    for (long long at = (long long)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP; at < (long long)M * N;
         at += warps) {
        const signed char *x = activations + at / N * stride;
        const unsigned char *row = weights + at % N * row_bytes;
        int sum = 0;
        for (long long j = lane; j < row_bytes; j += WARP) {
            unsigned digits = row[j];
#pragma unroll
            for (int i = 0; i < DIGITS; i++, digits /= 3)
                if (j * DIGITS + i < K)
                    sum += x[j * DIGITS + i] * ((int)(digits % 3) - 1);
        }
#pragma unroll
        for (int apart = WARP / 2; apart; apart /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0)
            store(out, at, sum, weight_scale, kind ? act_scale[at / N] : 1.0f, kind);
    }
}
