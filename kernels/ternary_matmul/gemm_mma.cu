/* ternary_matmul for some rows of activations on the tensor cores (8.0 and newer): weights (N, K) in row16, decoded in
 * registers once for 8 * GROUPS rows.
 *
 * The story (v1 is tiled.cu, v2 gemm.cu, for one to eight rows gemv_mma.cu, for many rows gemm_wgmma.cu):
 *   v3, here: as gemv_mma.cu, a warp takes 256 * STEPS k of 8 * ROWS8 rows of weights with all loads in flight, and the
 *      warps of a block share K and add their sums in shared memory. But a fragment of A meets GROUPS fragments of B, so
 *      sums of its own for each field of a word would not fit the registers: weights4 (common.cuh) decodes four
 *      weights, signed, with two instructions. The factor of the outputs is asked for before the weights.
 *
 * Bytes: N * K / 4 of weights once for 8 * GROUPS rows, and M * K of activations for each block, from L2: so blocks are
 * as tall as still gives every multiprocessor one. Sums are 64 times what they stand for: exact for K < 2^18.
 *
 * Times on an NVIDIA H200 (132 SMs), in us: weights cold in L2, bfloat16 outputs, in a CUDA graph; the
 * command of today is suites/performance/gemm_costs.py.
 *   M, N x K           v2      v3     ROWS8 GROUPS STEPS
 *   16, 2560 x 2560    48.3    4.4    3     2      1   (4.7 by ROWS8 = 2 in that process)
 *   32, 2560 x 2560            5.8    3     2      1
 *   16, 2560 x 6912            7.5    3     2      1
 *   16, 640 x 2560             3.6    2     2      1
 *   16, 13824 x 2560   66.7    11.0   4     2      1   (gemm_wgmma.cu is launched: 7.8)
 * Before the factor was asked for early: 4.86 for 4.66 at 16 x 2560 x 2560. Activations are all asked for together since
 * (mma_chunks.cuh; before, a branch around each load waited for it): 10.5 for 13.2 at 16 x 13824 x 2560 by the best
 * instance, 4.8 for 4.8 at 16 x 2560 x 2560.
 * Slower: blocks that stay, with the next tiles on their way and the sums of up to 112 rows kept in registers: 10.4 at
 * 16 x 14336 x 4096, where gemm_wgmma.cu takes 9.6, and 9.0 at 16 x 13824 x 2560, 7.6 there.
 * Launches overlap since (overlap.cuh): 4.17 for 4.70 at 16 x 2560 x 2560, 6.85 for 6.99 at 16 x 2560 x 6912. No faster:
 * weights prefetched; slower by up to 6 %: the next launch let begin when the first weights are asked for. Faster: when
 * the first activations are (3.97), and weights that are constant read before the launch before has ended (3.60).
 *
 * Macros: ROWS8 (8-row groups of a tile), GROUPS (of 8 rows of activations), STEPS (of 256 k of a warp that are in flight
 * together), THREADS (most threads of a block). */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "mma.cuh"
#include "mma_chunks.cuh"

#define TILE (8 * ROWS8)
#define PAIRS ((ROWS8 + 1) / 2)

/* grid: any number of blocks; block: whole warps, at least 8 * GROUPS threads. Dynamic shared memory: 64 * GROUPS bytes,
 * then 256 * GROUPS * ROWS8 a warp. a: aligned to 16 bytes, lda bytes between its rows. constant: no launch writes the
 * weights, see overlap.cuh. K < 2^18. Indexes the bytes of weights and M * N outputs in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemm_shared[];
    double *const factors = (double *)gemm_shared; /* [8 * GROUPS] */
    int *const sums = (int *)(factors + 8 * GROUPS); /* [warps][8 * GROUPS][TILE] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK, tiles_m = (M + 8 * GROUPS - 1) / (8 * GROUPS);
    const long long tiles = (long long)tiles_m * ((N + TILE - 1) / TILE);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;

    uint4 now[STEPS][ROWS8];
    const auto load = [&](int n0, int from) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < ROWS8; r++) {
                const int row = n0 + 8 * r + g, chunk = from + 4 * s;
                now[s][r] =
                    row < N && chunk < chunks ? weights16(w + (long long)row * chunks + chunk) : make_uint4(0, 0, 0, 0);
            }
    };
    const int first = 4 * STEPS * warp + t;
    bool loaded = constant;
    if (loaded)
        load(blockIdx.x / tiles_m * TILE, first);
    wait_for_the_one_before();
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int m0 = (int)(tile % tiles_m) * 8 * GROUPS, n0 = (int)(tile / tiles_m) * TILE;
        /* Asked for before the weights, and divided while the warps end. */
        const bool divides = kind && threadIdx.x < 8 * GROUPS;
        const float scale = divides && m0 + threadIdx.x < M ? scale_early(act_scale + m0 + threadIdx.x) : 1.0f;
        int acc[GROUPS][PAIRS][4] = {};
        for (int from = first; from - t < chunks; from += 4 * STEPS * warps) {
            if (!loaded)
                load(n0, from);
            loaded = false;
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                int b[GROUPS][16];
                const int chunk = from + 4 * s;
                activations64_groups<GROUPS>(b, a, lda, m0 + g, M, chunk < chunks ? chunk : -1, K, fast);
                let_the_next_begin();
                multiply_chunks<ROWS8, GROUPS>(acc, now[s], b);
            }
        }
        if (divides)
            factors[threadIdx.x] = output_factor(weight_scale, scale);
        int *const mine = sums + warp * 8 * GROUPS * TILE;
#pragma unroll
        for (int c = 0; c < GROUPS; c++)
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int r = 0; r < ROWS8; r++)
                    mine[(8 * c + 2 * t + j) * TILE + 8 * r + g] = acc[c][r / 2][r % 2 * 2 + j] >> 6;
        __syncthreads();
        for (int i = threadIdx.x; i < min(M - m0, 8 * GROUPS) * TILE; i += blockDim.x) {
            const int m = m0 + i / TILE, n = n0 + i % TILE;
            int sum = 0;
            for (int j = 0; j < warps; j++)
                sum += sums[j * 8 * GROUPS * TILE + i];
            if (n < N)
                store(out, (long long)m * N + n, sum, kind ? factors[m - m0] : 0.0, kind);
        }
        __syncthreads();
    }
}
#undef TILE
#undef PAIRS
