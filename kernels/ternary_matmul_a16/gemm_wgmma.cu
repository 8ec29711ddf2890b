/* ternary_matmul_a16 for many rows of activations on Hopper's asynchronous tensor cores (wgmma, 9.0a): weights (N, K)
 * in row16, decoded in registers.
 *
 * The story, which begins with ternary_matmul's gemm_wgmma.cu:
 *   v1, here: a block makes COLUMNS rows of activations times ROWS rows of weights at a time. One warpgroup copies 64
 *      or 128 k of both (a stage) into a ring in shared memory; two multiply 64 * BLOCKS rows of weights each. Weights
 *      are the operand A of m64nNk16, which may come from registers: of 16 weights a lane needs four, one byte pair of
 *      a word and two fields of it, by 5 instructions. Activations are the operand B, as they lie in memory.
 *   SPLIT > 1, for few tiles: a cluster of blocks shares the K of a tile, and adds its sums through distributed shared
 *      memory, in the order of the blocks.
 *   v2: they are written and read by 16 bytes in the order of the threads (add_shares), not one by one.
 *
 * Operations: 2 M N K at 4096 a cycle and multiprocessor, 989 TFLOPS at the clock of the data sheet. Bytes: a stage of
 * 64 k takes 128 * COLUMNS + 16 * ROWS bytes from L2 for 128 * COLUMNS * ROWS operations; for 128 x 256 that is 20 KB
 * in 1,024 cycles. So a tile is wide in weights, which are small.
 *
 * Times on an NVIDIA H200 (132 SMs), in us: weights cold in L2, bfloat16 activations and outputs, in a CUDA graph, by
 * turns with PyTorch 2.11's bfloat16 product of dense weights. Measured with a benchmark outside of this project, those
 * with * of v2, where v1 is behind the bar.
 *   M, N x K            here         PyTorch     M, N x K             here         PyTorch
 *   16, 2560 x 2560      6.3         7.4          128, 2560 x 2560      8.8 | 10.7  7.7 *
 *   16, 13824 x 2560    11.5        20.1          128, 13824 x 2560    20.3        23.1
 *   16, 14336 x 4096    16.3        30.9          128, 2560 x 6912     16.4        16.6 *
 *   64, 2560 x 2560      6.5 |  7.8  7.3 *        256, 2560 x 6912     23.8 | 31.1 17.7 *
 *   64, 13824 x 2560    14.4        22.0          512, 13824 x 2560    58.7        48.2
 *   64, 2560 x 6912     11.5 | 12.7 14.1 *        512, 14336 x 4096    88.6        84.3
 *   64, 14336 x 4096    20.8        33.9          2048, 2560 x 6912    92.8        86.4
 *   64, 4096 x 14336    25.2        35.2 *        2048, 14336 x 4096   304         284
 * Each lane that has read a stage says so itself, not one for its warp: racecheck of compute-sanitizer takes the other for
 * a hazard, and the times are the same (outside of this project: 10.4 and 15.4 for 10.4 and 15.3 at 16 x 13824 x 2560
 * and 14336 x 4096; 9.4 for 9.9 at 16 x 2560 x 6912).
 * SPLIT at 64 x 2560 x 6912: 11.5 by four blocks, 13.9 by three, 18.9 by two, 31.3 by one.
 * What 2048 x 14336 x 4096 waits for is neither decoding nor the end of a tile: without the one it took 313, without
 * the other 322, for 309 with both. Slower: one warpgroup 4 or 7 stages ahead, so that their ends do not fall together
 * (334). From M = 128 on, with few tiles, and past M = 256 PyTorch's kernels are faster.
 *
 * Macros: INPUT (see a16.cuh), COLUMNS (see wgmma.cuh), BLOCKS (1, 2), PANELS (64 k of a stage: 1, 2), SLICES (of 16 k
 * that are decoded at a time: 2, 4 where PANELS is 2), STAGES, SPLIT (blocks that share the K of a tile: 1 to 8),
 * THREADS (384). */
#include "../cuda/overlap.cuh"
#include "a16.cuh"
#include "wgmma.cuh"

#define WARPGROUP 128
#define ROWS (128 * BLOCKS) /* of weights of a tile, of two warpgroups each half */
#define PANEL_BYTES (COLUMNS * DEPTH + 16 * ROWS)
#define STAGE_BYTES (PANELS * PANEL_BYTES)
#define PARTS (4 * PANELS / SLICES) /* of a stage, each decoded and multiplied while the one before is multiplied */

/* The transpose of an 8 x 8 matrix of 16-bit elements: lane 4 r + c has elements 2 c and 2 c + 1 of row r. */
__device__ __forceinline__ unsigned transposed(unsigned pair)
{
#ifdef TRITMARK_SIMULATOR
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const unsigned first = __shfl_sync(0xffffffffu, pair, 8 * t + g / 2),
                   second = __shfl_sync(0xffffffffu, pair, 8 * t + 4 + g / 2);
    return (first >> 16 * (g % 2) & 0xffffu) | (second >> 16 * (g % 2)) << 16;
#else
    unsigned to;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
    return to;
#endif
}

#if SPLIT > 1
static_assert(4 * COLUMNS * ROWS <= STAGES * STAGE_BYTES, "sums take the place of stages");
#endif

/* grid: any number of blocks, with SPLIT > 1 just SPLIT a tile; block: THREADS threads. Dynamic shared memory: STAGES *
 * (STAGE_BYTES + 16). a: aligned to its element, lda bytes between its rows; w: row16. kind: 1 float32, 2 bfloat16, 3 float16. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_a16_wgmma(
    const unsigned short *a, const unsigned char *w, void *out, long long lda, float weight_scale, int M, int N, int K,
    int kind)
{
    extern __shared__ __align__(1024) unsigned char gemm_shared[];
    unsigned char *const stages = gemm_shared;
#ifndef TRITMARK_SIMULATOR
    unsigned long long *const full = (unsigned long long *)(stages + STAGES * STAGE_BYTES), *const empty =
                                                                                                full + STAGES;
#endif
    const int warpgroup = threadIdx.x / WARPGROUP, p = threadIdx.x % WARPGROUP;
    const int chunks = (K + CHUNK - 1) / CHUNK, steps = (chunks + PANELS - 1) / PANELS;
#ifdef TRITMARK_SIMULATOR
    if (blockIdx.x % SPLIT)
        return;
#endif
    /* Of the stages of a tile those of this block. */
    const int rank = SPLIT > 1 ? blockIdx.x % SPLIT : 0;
    const int begin_step = SPLIT > 1 ? (int)((long long)steps * rank / SHARES) : 0,
              end_step = SPLIT > 1 ? (int)((long long)steps * (rank + 1) / SHARES) : steps;
    const int tiles_m = (M + COLUMNS - 1) / COLUMNS;
    const long long tiles = (long long)tiles_m * ((N + ROWS - 1) / ROWS);
#ifndef TRITMARK_SIMULATOR
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(full + i, WARPGROUP), barrier_init(empty + i, 2 * WARPGROUP);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
    if (warpgroup == 0) {
        /* Two stages of weights. */
        const long long n0 = blockIdx.x / SPLIT / tiles_m * (long long)ROWS;
        const int from = PANELS * begin_step;
        for (int i = p; i < 2 * ROWS; i += WARPGROUP) {
            const long long row = n0 + i / 2;
            const int chunk = from + PANELS * (i % 2);
            if (row < N && chunk < chunks)
                prefetch(w + 16 * (row * chunks + chunk));
        }
    }
    wait_for_the_one_before();

    if (warpgroup == 0) {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
        const int part = p % 8, row_a = p / 8, part_w = p % PANELS, row_w = p / PANELS;
        const long long row_bytes = 16ll * chunks;
        int stage = 0;
#ifndef TRITMARK_SIMULATOR
        unsigned parity = 1;
#endif
        for (long long tile = blockIdx.x / SPLIT; tile < tiles; tile += gridDim.x / SPLIT) {
            const int m0 = (int)(tile % tiles_m) * COLUMNS, n0 = (int)(tile / tiles_m) * ROWS;
            const int rows_a = M - m0 - row_a, rows_w = N - n0 - row_w; /* that there are from this thread's first on */
            const char *const from_a = (const char *)a + (m0 + row_a) * lda;
            const unsigned char *from_w = w + (n0 + row_w) * row_bytes + 16 * (PANELS * begin_step + part_w);
            for (int step = begin_step; step < end_step; step++) {
                unsigned char *const to_a = stages + stage * STAGE_BYTES + swizzled(row_a, part);
                unsigned char *const to_w =
                    stages + stage * STAGE_BYTES + PANELS * COLUMNS * DEPTH + (part_w * ROWS + row_w) * 16;
#ifndef TRITMARK_SIMULATOR
                barrier_wait(empty + stage, parity);
#endif
#pragma unroll
                for (int panel = 0; panel < PANELS; panel++) {
                    const int k = (step * PANELS + panel) * CHUNK + 8 * part;
                    if (fast) {
                        const int bytes = min(16, max(0, 2 * (K - k)));
#pragma unroll
                        for (int i = 0; i < COLUMNS / 16; i++)
                            copy16(
                                to_a + (COLUMNS * panel + 16 * i) * DEPTH, from_a + 16 * i * lda + 2ll * k,
                                16 * i < rows_a ? bytes : 0);
                    } else {
#pragma unroll 1
                        for (int i = 0; i < COLUMNS / 16; i++)
                            *(uint4 *)(to_a + (COLUMNS * panel + 16 * i) * DEPTH) =
                                16 * i < rows_a
                                    ? activations8((const unsigned short *)(from_a + 16 * i * lda), k, K, false)
                                    : make_uint4(0, 0, 0, 0);
                    }
                }
                const int there = PANELS * step + part_w < chunks ? rows_w : 0;
#pragma unroll
                for (int i = 0; i < ROWS; i += WARPGROUP / PANELS)
                    copy16(to_w + 16 * i, from_w + i * row_bytes, i < there ? 16 : 0);
                from_w += 16 * PANELS;
                if (step == min(begin_step + STAGES, end_step) - 1)
                    let_the_next_begin();
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
                exchange_stage();
#else
                if (!fast) {
                    asm volatile("cp.async.wait_all;" ::: "memory");
                    barrier_arrive(full + stage);
                } else {
                    barrier_arrive_copied(full + stage);
                }
                if (++stage == STAGES)
                    stage = 0, parity ^= 1;
#endif
            }
        }
#ifndef TRITMARK_SIMULATOR
        asm volatile("cp.async.wait_all;" ::: "memory");
#elif SPLIT > 1
        multipliers_sync();
        cluster_sync();
        cluster_sync();
#endif
    } else {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
        const int lane = p % 32, warp = p / 32, g = lane / 4, t = lane % 4;
        const int row = (warpgroup - 1) * 64 * BLOCKS + 16 * warp + g; /* of the tile, of this lane's first weights */
        /* Of 16 weights a lane has 2t, 2t + 1 and 8 more: two bytes of a word, fields t / 2 and t / 2 + 2 of them. */
        const unsigned bytes = t % 2 ? 0x4342u : 0x4140u,
                       mask[2] = {0x00030003u << t / 2 * 2, 0x00300030u << t / 2 * 2};
        const unsigned step_of[2] = {twice(STEP(t / 2)), twice(STEP(t / 2 + 2))};
        const unsigned back_of[2] = {twice(BACK(t / 2)), twice(BACK(t / 2 + 2))};
        int stage = 0;
#ifndef TRITMARK_SIMULATOR
        unsigned parity = 0;
#endif
        float acc[BLOCKS][COLUMNS / 2];
        unsigned fragment[2][BLOCKS][SLICES][4]; /* part, block of 64 rows, 16 k */
        uint4 words[2][BLOCKS][2]; /* panel, 64 k, rows of this lane */
        for (long long tile = blockIdx.x / SPLIT; tile < tiles; tile += gridDim.x / SPLIT) {
            const int m0 = (int)(tile % tiles_m) * COLUMNS, n0 = (int)(tile / tiles_m) * ROWS;
#ifndef TRITMARK_SIMULATOR
            int before = -1;
#endif
            const auto fetch = [&](int panel) {
                const uint4 *const weights =
                    (const uint4 *)(stages + stage * STAGE_BYTES + PANELS * COLUMNS * DEPTH) + panel * ROWS + row;
#pragma unroll
                for (int block = 0; block < BLOCKS; block++) {
                    words[panel % 2][block][0] = weights[64 * block];
                    words[panel % 2][block][1] = weights[64 * block + 8];
                }
            };
            const auto begin = [&]() {
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                barrier_wait(full + stage, parity);
                multiply_sees();
#endif
                fetch(0);
            };
            const auto decode = [&](unsigned (&to)[BLOCKS][SLICES][4], int part) {
#pragma unroll
                for (int block = 0; block < BLOCKS; block++)
#pragma unroll
                    for (int high = 0; high < 2; high++) {
                        const uint4 of = words[part * SLICES / 4 % 2][block][high];
#pragma unroll
                        for (int i = 0; i < SLICES; i++) {
                            const int slice = (part * SLICES + i) % 4;
                            const unsigned word = slice == 0 ? of.x : slice == 1 ? of.y : slice == 2 ? of.z : of.w;
                            const unsigned fields = __byte_perm(word, 0, bytes);
                            to[block][i][high] = weights2(fields, mask[0], step_of[0], back_of[0]);
                            to[block][i][2 + high] = weights2(fields, mask[1], step_of[1], back_of[1]);
                        }
                    }
            };
            const auto product = [&](const unsigned (&of)[BLOCKS][SLICES][4], const unsigned char *acts, int part,
                                     int add) {
                multiply_begin();
#pragma unroll
                for (int block = 0; block < BLOCKS; block++)
#pragma unroll
                    for (int i = 0; i < SLICES; i++)
                        multiply(
                            acc[block], of[block][i], acts + part * SLICES / 4 * COLUMNS * DEPTH,
                            (part * SLICES + i) % 4 * 32, add || i);
                multiply_end();
            };
            if (SPLIT == 1 || begin_step < end_step)
                begin();
            for (int step = begin_step; step < end_step; step++) {
                const unsigned char *const acts = stages + stage * STAGE_BYTES;
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    decode(fragment[part % 2], part);
                    product(fragment[part % 2], acts, part, step > begin_step || part);
                    if (part + 1 < PARTS) {
                        if ((part + 1) * SLICES % 4 == 0)
                            fetch((part + 1) * SLICES / 4);
                        multiply_wait<1>();
                    }
#ifndef TRITMARK_SIMULATOR
                    if (part == 0 && before >= 0)
                        barrier_arrive(empty + before);
#endif
                }
                /* The next stage's weights are on their way while this one's are multiplied. */
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                before = stage;
                if (++stage == STAGES)
                    stage = 0, parity ^= 1;
#endif
                if (step + 1 < end_step)
                    begin();
                multiply_wait<1>();
            }
            multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
            if (before >= 0)
                barrier_arrive(empty + before);
#endif
            __syncwarp();
#if SPLIT > 1
            add_shares<SHARES>((float4 *)gemm_shared, acc, begin_step < end_step, rank, [&](int m, int n, float sum) {
                if (m0 + m < M && n0 + n < N)
                    store_float(out, (m0 + m) * (long long)N + n0 + n, sum * weight_scale, kind);
            });
#else
            const bool whole = m0 + COLUMNS <= M && n0 + ROWS <= N;
            if (whole && kind != 1 && N % 4 == 0) {
                /* 32 bytes of a row of outputs by four lanes, 8 by each. */
                unsigned short *const to =
                    (unsigned short *)out + (m0 + g) * (long long)N + n0 + row - g + (t & 1 ? 6 + 2 * t : 2 * t);
#pragma unroll
                for (int from = 0; from < COLUMNS / 2; from += 4)
#pragma unroll
                    for (int block = 0; block < BLOCKS; block++) {
                        const float *const sum = acc[block] + from;
                        const unsigned low =
                            transposed(narrow_pair(sum[0] * weight_scale, sum[1] * weight_scale, kind));
                        const unsigned high =
                            transposed(narrow_pair(sum[2] * weight_scale, sum[3] * weight_scale, kind));
                        const unsigned swapped = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
                        *(uint2 *)(to + from / 4 * 8 * (long long)N + 64 * block) =
                            t & 1 ? make_uint2(swapped, high) : make_uint2(low, swapped);
                    }
            } else {
                char *const to = (char *)out + ((m0 + 2 * t) * (long long)N + n0 + row) * (kind == 1 ? 4 : 2);
#pragma unroll
                for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
#pragma unroll
                        for (int block = 0; block < BLOCKS; block++) {
                            const int m = 8 * j + 2 * t + e % 2, n = 64 * block + e / 2 * 8;
                            if (whole || (m < M - m0 && row + n < N - n0))
                                store_float(
                                    to, (8 * j + e % 2) * (long long)N + n, acc[block][4 * j + e] * weight_scale, kind);
                        }
            }
            __syncwarp();
#endif
        }
    }
}
