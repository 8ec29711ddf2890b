/* ternary_matmul_a16 for a few rows of activations, M <= 8 * GROUPS, on the tensor cores (8.0 and newer): weights (N,
 * K) in row16, each read once and decoded in registers.
 *
 * Layout: a warp brings the activations of its 256 k into shared memory, 512 bytes of a row by one instruction, and
 * keeps them for all tiles of its block.
 *
 * Algorithm: the weights of the next tile are in flight while those of this one are multiplied. Sums go to one of two
 * accumulators alternately, because each mma waits for the one before. Two weights are decoded by one logical operation
 * (a16.cuh).
 *
 * Limit: memory and latency; launches overlap (overlap.cuh).
 *
 * Macros: INPUT (see a16.cuh), ROWS8 (8-row groups of a tile), GROUPS (of 8 rows of activations), THREADS (most threads
 * of a block).
 *
 * Rates: `python suites/performance/gpu_peers.py --activations bfloat16 --rows 1 8`.
 * Versions: docs/kernels/cuda_a16.md. */
#include "../cuda/overlap.cuh"
#include "a16.cuh"

#define TILE (8 * ROWS8)
#define PAIRS ((ROWS8 + 1) / 2)
#define SPAN 256 /* k of a warp at a time: a chunk for each of four lanes */

#ifndef TRITMARK_A16_GEMV
#define TRITMARK_A16_GEMV
/* The place of 16 bytes, number `part` of 8, of the activations that go with chunk `t` of row m: the number is XORed
 * with t and m, so that eight lanes read eight of them from different banks. */
__device__ __forceinline__ int placed(int m, int t, int part)
{
    return m * 512 + t * 128 + ((part ^ (t + 4 * (m & 1))) << 4);
}
#endif

/* grid: any number of blocks; block: whole warps. Dynamic shared memory: for each warp, and each time that the warps go
 * over K, 512 bytes a row of activations, then 8 * TILE * M bytes a warp. a: aligned to its element, lda bytes between
 * its rows. kind: 1 float32, 2 bfloat16, 3 float16. constant: no launch writes the weights, see overlap.cuh. Indexes
 * the bytes of weights and M * N outputs in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_a16_gemv(
    const unsigned short *a, const uint4 *w, void *out, long long lda, float weight_scale, int M, int N, int K,
    int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK, tiles = (N + TILE - 1) / TILE;
    const int passes = (K + SPAN * warps - 1) / (SPAN * warps);
    unsigned char *const mine = gemv_shared + warp * passes * M * 512; /* [passes][M][512] */
    float *const sums = (float *)(gemv_shared + warps * passes * M * 512); /* [2][warps][M][TILE] */

    uint4 now[ROWS8], next[ROWS8];
    /* The valid 16-byte loads of weights of a pass. */
    const auto each_of = [&](int tile, int pass, const auto &take) {
#pragma unroll
        for (int r = 0; r < ROWS8; r++) {
            const int row = tile * TILE + 8 * r + g, chunk = 4 * (warp + warps * pass) + t;
            take(r, w + (long long)row * chunks + chunk, row < N && chunk < chunks);
        }
    };
    const auto load = [&](uint4(&to)[ROWS8], int tile, int pass) {
        each_of(tile, pass, [&](int r, const uint4 *at, bool there) {
            to[r] = there ? weights16(at) : make_uint4(0, 0, 0, 0);
        });
    };
    if (!constant) {
        each_of(blockIdx.x, 0, [](int, const uint4 *at, bool there) {
            if (there)
                prefetch(at);
        });
        wait_for_the_one_before();
    }
    load(now, blockIdx.x, 0);
    if (constant)
        wait_for_the_one_before();
    else
        let_the_next_begin();

    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    for (int pass = 0; pass < passes; pass++) {
        const int k = SPAN * (warp + warps * pass) + 8 * lane;
        for (int m = 0; m < M; m++) {
            const unsigned short *const row = (const unsigned short *)((const char *)a + m * lda);
            unsigned char *const to = mine + pass * M * 512 + placed(m, lane / 8, lane % 8);
            if (fast)
                copy_async(to, row + k, min(16, max(0, 2 * (K - k))));
            else
                *(uint4 *)to = activations8(row, k, K, false);
        }
    }
    if (constant)
        let_the_next_begin();
#ifndef TRITMARK_SIMULATOR
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncwarp();

    int half = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, half ^= 1) {
        float acc[GROUPS][PAIRS][2][4] = {}; /* words alternate between two sums: chains of half the length */
        for (int pass = 0; pass < passes; pass++) {
            const bool last = pass + 1 == passes;
            load(next, last ? tile + gridDim.x : tile, last ? 0 : pass + 1);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                unsigned b[GROUPS][8] = {};
#pragma unroll
                for (int c = 0; c < GROUPS; c++)
                    if (8 * c + g < M) {
                        const unsigned char *const from = mine + pass * M * 512;
                        *(uint4 *)b[c] = *(const uint4 *)(from + placed(8 * c + g, t, 2 * j));
                        *(uint4 *)(b[c] + 4) = *(const uint4 *)(from + placed(8 * c + g, t, 2 * j + 1));
                    }
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                    const uint4 low = now[2 * p], high = now[2 * p + 1 < ROWS8 ? 2 * p + 1 : 2 * p];
                    unsigned above[8], below[8] = {};
                    weights16_of(above, j == 0 ? low.x : j == 1 ? low.y : j == 2 ? low.z : low.w);
                    if (2 * p + 1 < ROWS8)
                        weights16_of(below, j == 0 ? high.x : j == 1 ? high.y : j == 2 ? high.z : high.w);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int c = 0; c < GROUPS; c++)
                            mma(acc[c][p][i % 2], above[2 * i], below[2 * i], above[2 * i + 1], below[2 * i + 1],
                                b[c][2 * i], b[c][2 * i + 1]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS8; r++)
                now[r] = next[r];
        }
        float *const partial = sums + (half * warps + warp) * M * TILE;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (8 * c + 2 * t + j < M)
#pragma unroll
                    for (int r = 0; r < ROWS8; r++) {
                        const int e = r % 2 * 2 + j;
                        partial[(8 * c + 2 * t + j) * TILE + 8 * r + g] = acc[c][r / 2][0][e] + acc[c][r / 2][1][e];
                    }
        __syncthreads(); /* one barrier a tile is enough: the next tile's sums go to the other half */
        for (int i = threadIdx.x; i < M * TILE; i += blockDim.x) {
            const int n = tile * TILE + i % TILE;
            float sum = 0.0f;
#pragma unroll 4
            for (int j = 0; j < warps; j++)
                sum += sums[(half * warps + j) * M * TILE + i];
            if (n < N)
                store_float(out, (long long)(i / TILE) * N + n, sum * weight_scale, kind);
        }
    }
}
#undef TILE
#undef PAIRS
#undef SPAN
