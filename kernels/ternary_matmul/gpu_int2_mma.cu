/* ternary_matmul from gpu_int2 for several rows of activations, by the tensor cores: weights decoded once for
 * 8 * GROUPS rows. The layout of weights is in gpu_int2.cu.
 *
 * Layout: in one mma.m16n8k32, A (16 x 32) is weights, B (32 x 8) activations. The order of k in those 32 and of rows
 * in those 16 is free as long as A, B and the outputs agree: lane (g, t) = (lane / 4, lane % 4) takes 16 bytes, rows 4g
 * to 4g + 3 of two strips, columns 16t to + 15 of 64. A warp's load is 256 contiguous bytes of each strip. Two such
 * loads (the second of the next 64 columns) are 8 mma for 8 rows of activations: rows 4g + p and 4g + p + 2, p 0 and 1,
 * field i of both loads. Lane (m, t) brings 16 bytes of activations of row m for each load.
 *
 * Algorithm: the upper bit of a field w + 2, inverted, is its sign: (field ^ 2) is w in two bits of two's complement.
 * Shifted to the top of a byte it is 64 w. So a word costs 3 shifts and 4 LOP3 for 16 weights, all fields count alike,
 * and no sum of activations is needed. The mma makes the sums over t. A block is some warps that share the K of 32 rows
 * of weights and 8 * GROUPS of activations and add their sums in shared memory.
 * Bound: 64 * 128 for each column, in int32 for less than 2^18 columns a warp.
 *
 * Limit: many rows: loads of activations from L1, 512 bytes for 8 rows and 64 columns, for each 32 rows of weights.
 *
 * Macros: GROUPS (of 8 rows of activations), STEPS (pairs of loads in flight), THREADS (most threads of a block).
 *
 * Rates: `tritmark run --suite FILE --op ternary_matmul --device cuda`, FILE with the rows to measure.
 * Versions: docs/kernels/cuda_gpu_int2.md. */
#include "common.cuh"
#include "../cuda/tiles/mma.cuh"

#define STRIP 16 /* rows of a tile */
#define COLUMNS 32 /* of a tile */
#define WORDS 8 /* of 16 bytes in a tile */
#define HIGH 32 /* rows of weights of a block: two strips */
#define WIDE 128 /* columns of a pair of loads */
#define ACTIVE (8 * GROUPS)
#define PITCH 36 /* words between two rows of sums: what 8 lanes write as 16 bytes lies in different banks */

/* Field i of a word as 4 signed bytes 64 w. */
__device__ __forceinline__ unsigned signed64(unsigned word, int i)
{
    return (word << (6 - 2 * i) ^ 0x80808080u) & 0xc0c0c0c0u;
}

/* grid: any number of blocks; block: whole warps, at least ACTIVE threads and more than K / 2^18 warps, each with no
 * more than 2^18 - 1 columns. Dynamic shared memory: warps * ACTIVE * PITCH * 4 bytes. N a multiple of 16, K of 32.
 * lda: bytes between rows of activations. Indexes the bytes of weights, M * N outputs and the blocks' shares of them in
 * 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gpu_int2_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind)
{
    extern __shared__ __align__(16) unsigned char gpu_int2_shared[];
    __shared__ double factors[ACTIVE];
    int *sums = (int *)gpu_int2_shared; /* [warps][ACTIVE][PITCH] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int tiles = K / COLUMNS, loads = (K + WIDE - 1) / WIDE, strips = N / STRIP;
    const int down = (strips + 1) / 2;
    const int word = t / 2 * WORDS + 4 * (g / 2 % 2) + 2 * (t % 2) + g % 2; /* of the two tiles that a load takes */
    const long long shares = (long long)down * ((M + ACTIVE - 1) / ACTIVE);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;

    for (long long share = blockIdx.x; share < shares; share += gridDim.x) {
        const int strip = (int)(share % down) * 2 + g / 4, m0 = (int)(share / down) * ACTIVE;
        const uint4 *from_here = w + ((long long)strip * tiles * WORDS + word);
        int acc[GROUPS][2][4] = {};
        for (int from = warp; from == warp || from < loads; from += STEPS * warps) {
            uint4 now[STEPS][2];
#pragma unroll
            for (int s = 0; s < STEPS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int first = 4 * (from + s * warps) + 2 * h;
                    now[s][h] = strip < strips && first + t / 2 < tiles
                                    ? weights16(from_here + (long long)first * WORDS)
                                    : make_uint4(0, 0, 0, 0);
                }
            /* The factors are computed while the first weights are loaded. */
            if (kind && from == warp && threadIdx.x < ACTIVE && m0 + (int)threadIdx.x < M)
                factors[threadIdx.x] = output_factor_early(weight_scale, scale_early(act_scale + m0 + threadIdx.x));
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                int4 b[GROUPS][2];
#pragma unroll
                for (int q = 0; q < GROUPS; q++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int m = m0 + 8 * q + g;
                        const long long k = (long long)WIDE * (from + s * warps) + WIDE / 2 * h + 16 * t;
                        b[q][h] = m < M && k < K ? activations16(a + m * lda, k, K, fast) : make_int4(0, 0, 0, 0);
                    }
                const unsigned words[2][4] = {
                    {now[s][0].x, now[s][0].y, now[s][0].z, now[s][0].w},
                    {now[s][1].x, now[s][1].y, now[s][1].z, now[s][1].w}};
#pragma unroll
                for (int p = 0; p < 2; p++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const unsigned a0 = signed64(words[0][p], i), a1 = signed64(words[0][p + 2], i);
                        const unsigned a2 = signed64(words[1][p], i), a3 = signed64(words[1][p + 2], i);
#pragma unroll
                        for (int q = 0; q < GROUPS; q++) {
                            const int four[2][4] = {
                                {b[q][0].x, b[q][0].y, b[q][0].z, b[q][0].w},
                                {b[q][1].x, b[q][1].y, b[q][1].z, b[q][1].w}};
                            mma_signed(acc[q][p], a0, a1, a2, a3, (unsigned)four[0][i], (unsigned)four[1][i]);
                        }
                    }
            }
        }
#pragma unroll
        for (int q = 0; q < GROUPS; q++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                *(int4 *)&sums[(warp * ACTIVE + 8 * q + 2 * t + j) * PITCH + 4 * g] =
                    make_int4(acc[q][0][j] >> 6, acc[q][1][j] >> 6, acc[q][0][2 + j] >> 6, acc[q][1][2 + j] >> 6);
        __syncthreads();
        for (int i = threadIdx.x; i < ACTIVE * HIGH; i += blockDim.x) {
            const int m = i / HIGH, row = i % HIGH, n = (int)(share % down) * HIGH + row;
            int sum = 0;
            for (int each = 0; each < warps; each++)
                sum += sums[(each * ACTIVE + m) * PITCH + row];
            if (m0 + m < M && n < N)
                store(out, (long long)(m0 + m) * N + n, sum, kind ? factors[m] : 0.0, kind);
        }
        __syncthreads(); /* before the next share overwrites them */
    }
}
