/* ternary_matmul, v1: the first kernel, in tiles (specification, 3.1), for any M, N, K.
 *
 * Algorithm: square tiles of TILE x TILE activations and weights in shared memory, the weights unpacked to a byte each;
 * one output a thread, one pass of the tiles over K.
 *
 * Limit: shared memory, not DRAM. A tile of 2 * TILE^2 bytes serves TILE^3 multiply-adds, each weight is unpacked once
 * for each TILE rows of activations, and each multiply-add reads two bytes of shared memory.
 *
 * Weights are read byte by byte, so no alignment is needed. Bound: 128 * K fits int32 for K < 2^24.
 *
 * Macros: TILE, 16 or 32; THREADS, of a block, its square.
 *
 * Rates: `tritmark run --suite gpu --op ternary_matmul --variant tiled --device cuda`.
 * The kernels that replace it: docs/kernels/cuda_gemm.md, docs/kernels/cuda_gemv.md. */
#include "common.cuh"

static_assert(THREADS == TILE * TILE, "a thread an output");

/* grid: any number of blocks; block: THREADS threads. w: row16, `row_bytes` a row; lda: bytes between rows of
 * activations. Indexes in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_i2s_tiled(
    const signed char *__restrict__ a, const unsigned char *__restrict__ w, const float *__restrict__ act_scale,
    void *__restrict__ out, long long lda, long long row_bytes, float weight_scale, int M, int N, int K, int kind)
{
    __shared__ signed char activations[TILE * TILE];     /* [m][k] */
    /* [n][k], a word more a row, so that a column's bytes lie in different banks */
    __shared__ signed char weights[TILE * (TILE + 4)];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const long long across = (N + TILE - 1) / TILE, tiles = across * ((M + TILE - 1) / TILE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile / across) * TILE, n0 = (int)(tile % across) * TILE;
        int acc = 0;
        for (int k0 = 0; k0 < K; k0 += TILE) {
            const int k = k0 + x, m = m0 + y, n = n0 + y;
            activations[y * TILE + x] = m < M && k < K ? a[m * lda + k] : (signed char)0;
            signed char weight = 0;
            if (n < N && k < K) {
                const int e = k % 16;
                weight = (signed char)((w[n * row_bytes + k / 16 * 4 + e % 4] >> 2 * (e / 4) & 3) - 1);
            }
            weights[y * (TILE + 4) + x] = weight;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < TILE; i++)
                acc += (int)activations[y * TILE + i] * (int)weights[x * (TILE + 4) + i];
            __syncthreads();
        }
        const int m = m0 + y, n = n0 + x;
        if (m < M && n < N) {
            const double factor = kind ? output_factor(weight_scale, act_scale[m]) : 0.0;
            store(out, (long long)m * N + n, acc, factor, kind);
        }
    }
}
