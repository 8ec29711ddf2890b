/* ternary_matmul for some rows of activations on the tensor cores (8.0 and newer): weights (N, K) in row16, decoded in
 * registers once for 8 * GROUPS rows.
 *
 * Layout: as in gemv_mma.cu, a warp takes 256 * STEPS k of 8 * ROWS8 rows of weights with all loads in flight, and the
 * warps of a block share K and add their sums in shared memory.
 *
 * Algorithm: a fragment of A meets GROUPS fragments of B, so separate sums for each field of a word would not fit the
 * registers. weights4 (common.cuh) decodes four signed weights with two instructions instead. All activations of a step
 * are requested together (mma_chunks.cuh). The factor of the outputs is requested before the weights. Sums are 64 times
 * their value: exact for K < 2^18.
 *
 * Limit: N * K / 4 bytes of weights once for 8 * GROUPS rows, and M * K bytes of activations from L2 for each block. So
 * blocks are as tall as possible while each multiprocessor still gets one.
 *
 * Macros: ROWS8 (8-row groups of a tile), GROUPS (of 8 rows of activations), STEPS (of 256 k of a warp that are in
 * flight together), THREADS (most threads of a block), EXPERTS: if defined, rows of activations have the weights of
 * their expert (ternary_matmul_experts).
 *
 * Rates: `python suites/performance/gemm_costs.py` for all instances, gpu_peers.py there for the one that is launched.
 * Versions and what lost: docs/kernels/cuda_gemm.md. */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "../cuda/tiles/mma.cuh"
#include "mma_chunks.cuh"
#ifdef EXPERTS
#include "../cuda/tiles/experts.cuh"
#include "../cuda/tiles/not_earlier.cuh"
#endif

#define TILE (8 * ROWS8)
#define PAIRS ((ROWS8 + 1) / 2)

/* grid: any number of blocks; block: whole warps, at least 8 * GROUPS threads. Dynamic shared memory: 64 * GROUPS
 * bytes, then 256 * GROUPS * ROWS8 a warp. a: aligned to 16 bytes, lda bytes between its rows. constant: no launch
 * writes the weights, see overlap.cuh. K < 2^18. Indexes the bytes of weights and M * N outputs in 64 bits.
 *
 * With EXPERTS, grid: shares + 1 (share_of_block in experts.cuh), and blocks that divide the tiles of a share.
 * expert_apart: 16 bytes between the weights of experts. */
#ifdef EXPERTS
extern "C" __global__ void __launch_bounds__(THREADS) gemm_experts_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, const float *weight_scales,
    const int *offsets, long long lda, long long expert_apart, int M, int N, int K, int kind, int E, int shares,
    unsigned long long *bad)
#else
extern "C" __global__ void __launch_bounds__(THREADS) gemm_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind, int constant)
#endif
{
#ifdef EXPERTS
    const int blocks = gridDim.y, block = blockIdx.y;
    const Share share = share_of_block<8 * GROUPS>(offsets, E, M, shares, bad);
    if (share.rows == 0)
        return;
    const float weight_scale = scale_early(weight_scales + share.expert);
    a += share.first * lda, w += share.expert * expert_apart, act_scale += share.first, M = share.rows;
    out = (char *)out + share.first * (long long)N * (kind > 1 ? 2 : 4);
#else
    const int blocks = gridDim.x, block = blockIdx.x;
#endif
    extern __shared__ __align__(16) unsigned char gemm_shared[];
    double *const factors = (double *)gemm_shared; /* [8 * GROUPS] */
    int *const sums = (int *)(factors + 8 * GROUPS); /* [warps][8 * GROUPS][TILE] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK;
#ifdef EXPERTS
    typedef int Count; /* of tiles */
    constexpr int tiles_m = 1;
    const Count tiles = (N + TILE - 1) / TILE;
#else
    typedef long long Count;
    const int tiles_m = (M + 8 * GROUPS - 1) / (8 * GROUPS);
    const Count tiles = (Count)tiles_m * ((N + TILE - 1) / TILE);
#endif
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
#ifdef EXPERTS
    bool loaded = false;
#else
    bool loaded = constant;
    if (loaded)
        load(block / tiles_m * TILE, first);
    wait_for_the_one_before();
#endif
    for (Count tile = block; tile < tiles; tile += blocks) {
        const int m0 = (int)(tile % tiles_m) * 8 * GROUPS, n0 = (int)(tile / tiles_m) * TILE;
        /* Requested before the weights, and divided while the warps end. */
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
#ifdef EXPERTS
                /* Divided while the weights arrive. */
                if (divides && s == 0 && from == first)
                    factors[threadIdx.x] = output_factor(not_earlier(weight_scale), not_earlier(scale));
#endif
                multiply_chunks<ROWS8, GROUPS>(acc, now[s], b);
            }
        }
#ifdef EXPERTS
        /* The next tile's weights arrive while this one's sums are added. */
        loaded = tile + blocks < tiles;
        if (loaded)
            load((tile + blocks) * TILE, first);
#else
        if (divides)
            factors[threadIdx.x] = output_factor(weight_scale, scale);
#endif
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
