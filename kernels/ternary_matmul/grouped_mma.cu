/* ternary_matmul for some rows of activations with a scale for each group of weights (grouped.cuh), on the tensor cores
 * (8.0 and newer); weights are decoded in registers once for 8 * EIGHTS rows.
 *
 * Layout: a warp takes 256 k of 8 * ROWS8 rows of weights, a step, into a ring of its own in shared memory. Lane (g, t)
 * reads word t of each chunk of 64 weights by ldmatrix, and 16 activations beside it, so an mma has k of one chunk
 * alone. Where two groups share a chunk (GROUP 32) each half of it is multiplied with the other one as zeros.
 *
 * Algorithm: at the end of a group its sums are converted, multiplied by the scale and added to float32 sums. The warps
 * of a block take steps in turn and add their sums in shared memory, always in the same order. Copies of STAGES steps
 * are in flight, also over the end of a tile; the first ones are requested before the launch before this one has
 * ended.
 *
 * Limit: weights once for 8 * EIGHTS rows of activations; with few rows of activations the instructions that decode and
 * scale, with small groups more.
 *
 * Macros: GROUP, ROWS8 (2, 4: 8-row groups of a tile), EIGHTS (of rows of activations), STAGES, THREADS (most threads
 * of a block), EXPERTS: as in gemm_mma.cu.
 *
 * Rates: `python suites/performance/grouped_products.py --rows 2 8 16 64`. Versions and what lost:
 * docs/kernels/cuda_grouped.md. */
#include "../cuda/overlap.cuh"
#include "grouped.cuh"
#include "../cuda/tiles/mma.cuh"
#ifdef EXPERTS
#include "../cuda/tiles/experts.cuh"
#include "../cuda/tiles/not_earlier.cuh"
#endif

#define TILE (8 * ROWS8)
#define PAIRS (ROWS8 / 2)
#define ACTIVE (8 * EIGHTS)
#define PITCH (TILE + 4) /* of sums: lanes write to different banks */
#define STEP 256
#define STEP_GROUPS (STEP / GROUP)
#define WEIGHTS_BYTES (64 * TILE)
#define STAGE_BYTES (WEIGHTS_BYTES + 2 * TILE * STEP_GROUPS)
#define BATCH (EIGHTS > 2 ? 2 : 4) /* chunks whose activations are requested together */

/* grid: any number of blocks; block: whole warps. Dynamic shared memory: 64 * EIGHTS bytes, then STAGES * STAGE_BYTES and
 * 4 * ACTIVE * PITCH a warp. K a multiple of GROUP. lda: bytes between rows of activations.
 * constant: no launch writes the weights, see overlap.cuh. Indexes the bytes of weights and M * N outputs in 64
 * bits. With EXPERTS: see gemm_mma.cu, for shares of ACTIVE rows. */
#ifdef EXPERTS
extern "C" __global__ void __launch_bounds__(THREADS) gemm_experts_grouped_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, const float *weight_scales,
    const int *offsets, long long lda, long long expert_apart, int M, int N, int K, int kind, int E, int shares,
    unsigned long long *bad)
#else
extern "C" __global__ void __launch_bounds__(THREADS) gemm_grouped_mma(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, long long lda, float weight_scale, int M,
    int N, int K, int kind, int constant)
#endif
{
#ifdef EXPERTS
    const int blocks = gridDim.y, block = blockIdx.y;
    const Share share = share_of_block<ACTIVE>(offsets, E, M, shares, bad);
    if (share.rows == 0)
        return;
    const float weight_scale = scale_early(weight_scales + share.expert);
    a += share.first * lda, w += share.expert * expert_apart, act_scale += share.first, M = share.rows;
    out = (char *)out + share.first * (long long)N * (kind > 1 ? 2 : 4);
#else
    const int blocks = gridDim.x, block = blockIdx.x;
#endif
    extern __shared__ __align__(16) unsigned char gemm_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    double *const factors = (double *)gemm_shared; /* [ACTIVE] */
    float *const sums = (float *)(factors + ACTIVE); /* [warps][ACTIVE][PITCH] */
    unsigned char *const ring = (unsigned char *)(sums + warps * ACTIVE * PITCH) + warp * STAGES * STAGE_BYTES;
    const int chunks = (K + CHUNK - 1) / CHUNK, groups = K / GROUP, steps = (chunks + 3) / 4;
#ifdef EXPERTS
    typedef int Count; /* of tiles */
    constexpr int tiles_m = 1;
    const Count tiles = (N + TILE - 1) / TILE;
#else
    typedef long long Count;
    const int tiles_m = (M + ACTIVE - 1) / ACTIVE;
    const Count tiles = (Count)tiles_m * ((N + TILE - 1) / TILE);
#endif
    const long long apart = scales_apart(N);
    const unsigned short *const all_scales = scales_in(w, N, K);
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;

    const auto request = [&](int n0, int step, int stage) {
        unsigned char *const to = ring + stage * STAGE_BYTES;
#pragma unroll
        for (int r = 0; r < ROWS8; r++) {
            const int row = 8 * r + g, chunk = 4 * step + t;
            const bool there = n0 + row < N && chunk < chunks;
            copy_async(to + chunk_at(row, t), there ? w + ((n0 + row) * (long long)chunks + chunk) : w, there ? 16 : 0);
        }
#pragma unroll
        for (int from = 0; from < ROWS8 * STEP_GROUPS; from += 32) {
            const int i = from + lane, group = step * STEP_GROUPS + i / ROWS8, n = n0 + i % ROWS8 * 8;
            const bool there = group < groups && n < N;
            if (i < ROWS8 * STEP_GROUPS)
                copy_async(
                    to + WEIGHTS_BYTES + 16 * i, there ? all_scales + (group * apart + n) : all_scales, there ? 16 : 0);
        }
        copies_end();
    };
    Count ahead = block; /* the tile and step that is requested next */
    int ahead_step = warp;
    const auto request_next = [&](int stage) {
        if (ahead < tiles && ahead_step < steps)
            request((int)(ahead / tiles_m) * TILE, ahead_step, stage);
        else
            copies_end();
        ahead_step += warps;
        if (ahead_step >= steps)
            ahead += blocks, ahead_step = warp;
    };
#ifndef EXPERTS
    if (!constant)
        wait_for_the_one_before();
#endif
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++)
        request_next(stage);
#ifndef EXPERTS
    if (constant)
        wait_for_the_one_before();
#endif
    int stage = 0;
    for (Count tile = block; tile < tiles; tile += blocks) {
        const int m0 = (int)(tile % tiles_m) * ACTIVE, n0 = (int)(tile / tiles_m) * TILE;
        const bool divides = threadIdx.x < ACTIVE;
        const float scale = divides && m0 + threadIdx.x < M ? scale_early(act_scale + m0 + threadIdx.x) : 1.0f;
        float total[EIGHTS][PAIRS][4] = {};
        for (int step = warp; step < steps; step += warps, stage = (stage + 1) % STAGES) {
            const unsigned char *const from = ring + stage * STAGE_BYTES;
            const unsigned short *const scales = (const unsigned short *)(from + WEIGHTS_BYTES) + g;
            unsigned words[ROWS8][4];
            int acc[EIGHTS][PAIRS][4];
#pragma unroll
            for (int first = 0; first < 4; first += BATCH) {
                int b[EIGHTS][BATCH][4];
#pragma unroll
                for (int c = 0; c < EIGHTS; c++)
#pragma unroll
                    for (int j = 0; j < BATCH; j++) {
                        const int m = m0 + 8 * c + g, k = STEP * step + CHUNK * (first + j) + 16 * t;
                        int4 four = make_int4(0, 0, 0, 0);
                        if (m < M && k < K) {
                            if (fast)
                                four = *(const int4 *)(a + m * lda + k);
                            else
                                four = make_int4(
                                    bytes4(a + m * lda, k, K), bytes4(a + m * lda, k + 4, K),
                                    bytes4(a + m * lda, k + 8, K), bytes4(a + m * lda, k + 12, K));
                        }
                        b[c][j][0] = four.x, b[c][j][1] = four.y, b[c][j][2] = four.z, b[c][j][3] = four.w;
                    }
                if (first == 0) {
                    let_the_next_begin();
                    copies_wait<STAGES - 1>();
                    __syncwarp();
#pragma unroll
                    for (int r = 0; r < ROWS8; r++)
                        words_of(words[r], from + 512 * r);
                }
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const int chunk = first + j;
#pragma unroll
                    for (int half = 0; half < (GROUP == 32 ? 2 : 1); half++) {
                        if (chunk * CHUNK % GROUP == 0)
#pragma unroll
                            for (int c = 0; c < EIGHTS; c++)
#pragma unroll
                                for (int p = 0; p < PAIRS; p++)
#pragma unroll
                                    for (int e = 0; e < 4; e++)
                                        acc[c][p][e] = MAGIC;
#pragma unroll
                        for (int p = 0; p < PAIRS; p++) {
                            unsigned low = words[2 * p][chunk], high = words[2 * p + 1][chunk];
                            if (GROUP == 32 && t / 2 != half)
                                low = high = 0x55555555u; /* zeros */
#pragma unroll
                            for (int i = 0; i < 4; i += 2) {
                                const unsigned up = 1u << (6 - 2 * i), next = up / 4;
                                const unsigned a0 = weights4(low, up), a1 = weights4(high, up);
                                const unsigned a2 = weights4(low, next), a3 = weights4(high, next);
#pragma unroll
                                for (int c = 0; c < EIGHTS; c++)
                                    mma_signed(acc[c][p], a0, a1, a2, a3, b[c][j][i], b[c][j][i + 1]);
                            }
                        }
                        const int end = (chunk + 1) * CHUNK; /* of this group, unless it is of 256 */
                        if (GROUP == 32 || end % GROUP == 0) {
                            const int group = GROUP == 32 ? 2 * chunk + half : end / GROUP - 1;
#pragma unroll
                            for (int p = 0; p < PAIRS; p++)
#pragma unroll
                                for (int h = 0; h < 2; h++) {
                                    const float by = scale_of(scales[(group * ROWS8 + 2 * p + h) * 8]);
#pragma unroll
                                    for (int c = 0; c < EIGHTS; c++)
#pragma unroll
                                        for (int e = 2 * h; e < 2 * h + 2; e++)
                                            total[c][p][e] = __fmaf_rn(by, part_of(acc[c][p][e]), total[c][p][e]);
                                }
                        }
                    }
                }
            }
            __syncwarp(); /* before the next copies overwrite what other lanes read */
            request_next(stage);
        }
        if (divides)
#ifdef EXPERTS
            factors[threadIdx.x] = output_factor(not_earlier(weight_scale), not_earlier(scale));
#else
            factors[threadIdx.x] = output_factor(weight_scale, scale);
#endif
#pragma unroll
        for (int c = 0; c < EIGHTS; c++)
#pragma unroll
            for (int p = 0; p < PAIRS; p++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sums[(warp * ACTIVE + 8 * c + 2 * t + e % 2) * PITCH + 16 * p + 8 * (e / 2) + g] = total[c][p][e];
        __syncthreads();
        for (int i = threadIdx.x; i < min(M - m0, ACTIVE) * TILE; i += blockDim.x) {
            const int m = i / TILE, n = i % TILE;
            float sum = 0;
            for (int j = 0; j < warps; j++)
                sum += sums[(j * ACTIVE + m) * PITCH + n];
            if (n0 + n < N)
                store_sum(out, (long long)(m0 + m) * N + n0 + n, sum, factors[m], kind);
        }
        __syncthreads(); /* before the next tile overwrites them */
    }
    copies_wait<0>();
}
#undef TILE
#undef PAIRS
#undef ACTIVE
#undef PITCH
#undef STEP
#undef STEP_GROUPS
#undef WEIGHTS_BYTES
#undef STAGE_BYTES
#undef BATCH
