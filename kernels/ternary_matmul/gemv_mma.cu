/* ternary_matmul for M <= 8 on the tensor cores: weights (N, K) in row16, each read once and decoded in registers.
 *
 * Layout of one mma.m16n8k32: A (16 x 32, row-major) is weights, B (32 x 8) activations. The order of k in those 32 is
 * free as long as A and B agree. Lane (g, t) = (lane / 4, lane % 4) takes 16 bytes = 64 weights of row g (and of row g
 * + 8), lane (m, t) the 64 activations of row m that go with chunk t. 4 chunks are a step of 256 weights.
 *
 * Algorithm: field i of a row16 word (its bits 2i, 2i + 1 of each byte) is masked, not shifted, so one instruction
 * decodes 4 weights and they count 4^i times. Each field has its own sums, which are shifted back at the end. This is
 * exact, because their last bits are zero. The sums of field 3 stay within int32 while a warp takes at most 2^19 of the
 * K (2 * 64 * 128 * 2^19 / 4 = 2^31, reached only on the negative side). sum(code * a) - sum(a) is the result. sum(a)
 * comes from a row of ones next to the weights' rows. With an odd number of 8-row groups it uses the free half of the
 * last mma.
 * A block owns a tile of 8 * ROWS8 rows of weights. Its warps split K, STEPS steps each, all loaded before any is used,
 * and add their sums in shared memory. A block takes further tiles while there are any.
 *
 * Limit: memory and its latency; 16 ands and 4 mma for 64 weights.
 *
 * Macros: ROWS8 (8-row groups of a tile), STEPS (steps of a warp that are in flight together), THREADS (most threads of
 * a block), ACTIVATIONS: 0 read where they are used, 1 kept in registers (FLOW 1 or 2); FLOW: 0 as many passes over K
 * as it takes, 1 one pass, 2 one pass and the next tile loaded before this one is multiplied.
 *
 * Rates: `python suites/performance/gpu_peers.py --rows 2 4 8`;
 * `tritmark tune instances --op ternary_matmul --shape 8,N,K`
 * measures all instances. Versions and what lost: docs/kernels/cuda_gemv.md. */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "../cuda/tiles/mma.cuh"

#ifndef TRITMARK_GEMV_MMA
#define TRITMARK_GEMV_MMA
/* The 64 activations of a chunk. */
__device__ __forceinline__ void activations64(int (&to)[16], const signed char *row, long long k, int K, bool fast)
{
    if (fast && k + CHUNK <= K) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int4 four = *(const int4 *)(row + k + 16 * i);
            to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 16; i++) { /* selects, because registers cannot be indexed */
        const int word = bytes4(row, k + 4 * i, K);
#pragma unroll
        for (int j = 0; j < 16; j++)
            to[j] = i == j ? word : to[j];
    }
}
#endif

#define TILE (8 * ROWS8)
#define PAIRS ((ROWS8 + 1) / 2)
#define SPARE (ROWS8 % 2) /* whether the upper half of the last mma is free */

/* grid: any number of blocks; block: whole warps, at least TILE * M threads, and K / 2^19 warps; with FLOW 1 or 2,
 * 256 * STEPS * warps >= K. Dynamic shared memory: 2 * warps * M * TILE * 4 bytes.
 * lda: bytes between rows of activations. constant: no launch writes the weights, see overlap.cuh. Indexes N * chunks *
 * 16 bytes of weights and M * N outputs in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gemv_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind, int constant)
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK;
    const int tiles = (N + TILE - 1) / TILE;
    const int first = 4 * STEPS * warp + t; /* chunk of this lane in the first step of the first pass */
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    int *sums = (int *)gemv_shared; /* [2][warps][M][TILE] */

    uint4 now[STEPS][ROWS8];
#if FLOW == 2
    uint4 next[STEPS][ROWS8];
#endif
    /* The valid 16-byte loads of weights of a step. */
    const auto each_of = [&](int tile, int from, const auto &take) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < ROWS8; r++) {
                const int row = tile * TILE + 8 * r + g, chunk = from + 4 * s;
                take(s, r, w + (long long)row * chunks + chunk, row < N && chunk < chunks);
            }
    };
    const auto load = [&](uint4(&to)[STEPS][ROWS8], int tile, int from) {
        each_of(tile, from, [&](int s, int r, const uint4 *at, bool there) {
            to[s][r] = there ? weights16(at) : make_uint4(0, 0, 0, 0);
        });
    };
    if (!constant) {
        each_of(blockIdx.x, first, [](int, int, const uint4 *at, bool there) {
            if (there)
                prefetch(at);
        });
        wait_for_the_one_before();
    }
    load(now, blockIdx.x, first);
#if FLOW == 2
    if (constant)
        load(next, blockIdx.x + gridDim.x, first);
#endif
    if (constant)
        wait_for_the_one_before();
    else
        let_the_next_begin();

    /* The thread that finishes output (m, row) of each tile has its factor ready before the weights arrive. */
    const int m_done = threadIdx.x / TILE, row_done = threadIdx.x % TILE;
    const float scale = kind && m_done < M ? scale_early(act_scale + m_done) : 1.0f;
#if ACTIVATIONS == 1
    int act[STEPS][16];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            act[s][i] = 0;
        if (g < M && first + 4 * s < chunks)
            activations64(act[s], a + g * lda, (long long)CHUNK * (first + 4 * s), K, fast);
    }
#endif
    if (constant)
        let_the_next_begin();
    const double factor = output_factor_early(weight_scale, scale);
#if FLOW == 2
    if (!constant)
        load(next, blockIdx.x + gridDim.x, first);
#endif

    int half = 0;
    for (int tile = blockIdx.x; tile < tiles; half ^= 1) {
        int acc[PAIRS][4][4] = {}; /* pair of 8-row groups, field, element of the fragment */
        int act_sum[4] = {};
        for ([[maybe_unused]] int from = first;;) {
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
#if ACTIVATIONS == 1
                const int (&b)[16] = act[s];
#else
                int b[16] = {};
                const int chunk = from + 4 * s;
                if (g < M && chunk < chunks)
                    activations64(b, a + g * lda, (long long)CHUNK * chunk, K, fast);
#endif
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const unsigned mask = 0x03030303u << 2 * i, b0 = b[8 * h + i], b1 = b[8 * h + 4 + i];
#pragma unroll
                        for (int p = 0; p < PAIRS; p++) {
                            const uint4 low = now[s][2 * p], high = now[s][2 * p + 1 < ROWS8 ? 2 * p + 1 : 2 * p];
                            const unsigned a0 = (h ? low.z : low.x) & mask, a2 = (h ? low.w : low.y) & mask;
                            unsigned a1 = ONES, a3 = ONES;
                            if (2 * p + 1 < ROWS8)
                                a1 = (h ? high.z : high.x) & mask, a3 = (h ? high.w : high.y) & mask;
                            mma(acc[p][i], a0, a1, a2, a3, b0, b1);
                        }
                        if (!SPARE)
                            mma(act_sum, ONES, ONES, ONES, ONES, b0, b1);
                    }
            }
#if FLOW
            break;
#else
            from += 4 * STEPS * warps;
            if (from - t >= chunks)
                break;
            load(now, tile, from);
#endif
        }

        int *mine = sums + (half * warps + warp) * M * TILE;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int m = 2 * t + j;
            const int ones = SPARE ? acc[PAIRS - 1][0][2 + j] + acc[PAIRS - 1][1][2 + j] + acc[PAIRS - 1][2][2 + j] +
                                         acc[PAIRS - 1][3][2 + j]
                                   : act_sum[j];
            if (m < M)
#pragma unroll
                for (int r = 0; r < ROWS8; r++) {
                    const int (&of)[4][4] = acc[r / 2];
                    const int e = r % 2 * 2 + j;
                    mine[m * TILE + 8 * r + g] = of[0][e] + (of[1][e] >> 2) + (of[2][e] >> 4) + (of[3][e] >> 6) - ones;
                }
        }
        __syncthreads(); /* one barrier a tile is enough: the next tile's sums go to the other half */
        if (m_done < M) {
            int sum = 0;
            for (int i = 0; i < warps; i++)
                sum += sums[((half * warps + i) * M + m_done) * TILE + row_done];
            const int n = tile * TILE + row_done;
            if (n < N)
                store(out, (long long)m_done * N + n, sum, factor, kind);
        }

        tile += gridDim.x;
#if FLOW == 2
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < ROWS8; r++)
                now[s][r] = next[s][r];
        load(next, tile + gridDim.x, first);
#else
        if (tile < tiles)
            load(now, tile, first);
#endif
    }
}

#undef TILE
#undef PAIRS
#undef SPARE
