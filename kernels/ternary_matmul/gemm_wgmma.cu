/* ternary_matmul for many rows of activations on Hopper's asynchronous tensor cores (wgmma, 9.0a): weights (N, K) in
 * row16, decoded in registers.
 *
 * The story (v1 is tiled.cu, v2 gemm.cu; gemm_mma.cu is for few rows):
 *   v3, here: a block makes COLUMNS rows of activations times ROWS rows of weights at a time. One warpgroup copies 128
 *      or 256 k of both (a stage) into a ring in shared memory; two multiply 64 * BLOCKS rows of weights each. Weights
 *      are the operand A of m64nNk32, which may come from registers: a lane needs field t of each word of its two rows,
 *      so each word is read by four lanes and gives one register. Activations are the operand B, as they lie in
 *      memory.
 *
 * Operations: 2 M N K at 8192 a cycle and multiprocessor, 1,979 TOPS at the clock of the data sheet. Bytes: a stage of
 * 128 k takes 128 * COLUMNS + 32 * ROWS bytes from L2 for 256 * COLUMNS * ROWS operations; for 128 x 256 that is 24 KB
 * in 1,024 cycles. So a tile is wide in weights, which are small.
 *
 * Times on an NVIDIA H200 (132 SMs), in us: weights cold in L2, bfloat16 outputs, in a CUDA graph; the
 * command of today is suites/performance/gemm_costs.py. Each step is the whole kernel of then.
 *                                                  16 x 2560 x 2560   512 x 14336 x 4096   2048 x 14336 x 4096
 *   copies waited for by the threads that copy            10.1               74.6                255
 *   a shift and five logical operations a register, copies that arrive by themselves
 *                                                         10.5               76.1                263
 *   one multiply-add and one and a register (below), weights fetched before the product is waited for
 *                                                          7.8               62.3                213
 *   outputs made by groups of eight, stored as 32 bytes a row
 *                                                          7.5               52.1                176
 *   256 k a stage for tiles of few rows                    7.0               51.7                175
 * Predicted for the third step: half of the 1,024 cycles of a stage less, for the integer pipe was busy in 512 of them;
 * found: the tensor cores are what is waited for since (in the loop, 1,600 TOPS). What is left is the end of a tile,
 * 4.5 us of the 24 that one of 128 x 256 x 4096 takes, in which the tensor cores rest: a conversion from float64 takes
 * 8 cycles a warp, 2,048 for a tile, the rest are latencies.
 * Tiles of 160 x 256: 2048 x 2560 x 6912 is 130 of them for 132 multiprocessors, and 160 of 128 x 256; predicted 51,
 * found 50.1 (96 x 256: 72; PyTorch's fp8 in that process: 48.9).
 * What is waited for, found by leaving it out (in another process than the times above, so to a tenth): without
 * products 7.8 at 16 x 13824 x 2560, 10.6 at 16 x 14336 x 4096, 10.7 at 128 x 13824 x 2560 (44 MB through L2), which is
 * nearly all; without copies 5.6, 7.5 and 10.2. At 512 x 13824 x 2560 31 without the end of a tile, 32 without copies.
 * Slower:
 *   - one warpgroup ahead by 3 or 5 stages, so that their ends do not fall together (187 and 192 for 175: one alone
 *     does not fill the tensor cores); four warpgroups, two for each half of a stage's k (11.9 for 10.8 at 16 x 14336
 *     x 4096);
 *   - bfloat16 out of two float32 products that bound the exact one, and out of float64 only where they differ:
 *     predicted 3 us less at 512 x 13824 x 2560, found 37.5 for 36.3, and 10.5 for 10.0 at 64 x 13824 x 2560. The bounds
 *     are made at the beginning of a tile; what the end waits for is not known yet.
 * With that end of a tile, against it:
 *   - weights fetched into L2 by bulk copies when a block begins: 9.2 for 8.7 at 16 x 13824 x 2560, 13.2 for 12.0 at 16
 *     x 14336 x 4096; 512 k a stage: 8.7 and 11.8;
 *   - tiles of 256 rows whose k two blocks of a cluster share, sums exchanged through distributed shared memory: 15.2
 *     for 13.4 at 128 x 13824 x 2560, 14.1 for 14.1 at 64 x 14336 x 4096; faster where few tiles have a long k: 17.9
 *     for 19.9 at 128 x 2560 x 6912;
 *   - tiles of 144 and 112 x 256, 112, 160 and 192 x 128: none is the fastest of a shape that was measured.
 *
 * Decoding (weights4 in common.cuh): the word times 4^(3 - t) plus 0xc0c0c0c0, and its top two bits of each byte: 64
 * times the weight, signed, by one instruction of each of the two integer pipes. So acc = 64 * sum(w * a), exact while
 * 64 * 128 * K < 2^31: K < 2^18.
 *
 * Ordering: copies are of the generic proxy and wgmma reads through the asynchronous one, so a warp that multiplies
 * fences after it has waited for a stage (0.035 us a stage for tiles of few rows, nothing for large ones). Rows of
 * activations that are not aligned to 16 bytes are read byte by byte and stored by the threads that copy; where K
 * leaves them so, gemm_align.cu copies them first.
 *
 * Macros: COLUMNS (multiple of 16), BLOCKS (1, 2), PANELS (128 k of a stage: 1, 2), STAGES, THREADS (384). */
#include "common.cuh"
#include "wgmma.cuh"

#define WARPGROUP 128
#define ROWS (128 * BLOCKS)        /* of weights of a tile, of two warpgroups each half */
#define STAGE_K (PANELS * DEPTH)   /* k of a stage */
#define STAGE_BYTES (COLUMNS * STAGE_K + ROWS * STAGE_K / 4)

/* The float32 next to sum * factor. The sum becomes a double by its place in one, for conversions are slow. */
__device__ __forceinline__ float scaled(int sum, double factor)
{
    const double wide = __longlong_as_double(0x4330000000000000ll | (unsigned)(sum ^ (int)0x80000000));
    return __double2float_rn(__dmul_rn(__dsub_rn(wide, 4503601774854144.0), factor));
}

/* Both as that kind, see narrowed, the first in the lower half. */
template <int KIND> __device__ __forceinline__ unsigned narrowed_pair(float first, float second)
{
#ifdef TRITMARK_SIMULATOR
    return narrowed(first, KIND) | (unsigned)narrowed(second, KIND) << 16;
#else
    unsigned both;
    if (KIND == 3)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#endif
}

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

/* The outputs of a whole tile in 16 bits, by one warp: 32 bytes of a row of outputs by four lanes, 8 by each. `to`:
 * where the lane's first 8 go, N outputs between rows; `factor`: of the tile's rows of activations. */
template <int KIND>
__device__ __forceinline__ void store_narrow(
    int (&acc)[BLOCKS][COLUMNS / 2], const double *factor, unsigned short *to, long long N)
{
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int from = 0; from < COLUMNS / 2; from += 8) {
#pragma unroll
        for (int i = from; i < from + 8; i += 2)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++)
                acc[block][i] = (int)transposed(
                    narrowed_pair<KIND>(
                        scaled(acc[block][i], factor[i / 4 * 8 + 2 * t]),
                        scaled(acc[block][i + 1], factor[i / 4 * 8 + 2 * t + 1])));
#pragma unroll
        for (int i = from; i < from + 8; i += 4)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                const int swapped = __shfl_xor_sync(0xffffffffu, t & 1 ? acc[block][i] : acc[block][i + 2], 1);
                *(int2 *)(to + i / 4 * 8 * N + 64 * block) =
                    t & 1 ? make_int2(swapped, acc[block][i + 2]) : make_int2(acc[block][i], swapped);
            }
    }
}

/* grid: any number of blocks; block: THREADS threads. Dynamic shared memory: STAGES * STAGE_BYTES, 16 bytes a stage, 64
 * * COLUMNS. a: aligned to 16 bytes, lda bytes between its rows; w: row16. K < 2^18. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_wgmma(
    const signed char *a, const unsigned char *w, const float *act_scale, void *out, long long lda, float weight_scale,
    int M, int N, int K, int kind)
{
    extern __shared__ __align__(1024) unsigned char gemm_shared[];
    unsigned char *const stages = gemm_shared;
    unsigned long long *const full = (unsigned long long *)(stages + STAGES * STAGE_BYTES), *const empty =
                                                                                                full + STAGES;
    double *const factors = (double *)(empty + STAGES); /* [8 warps][COLUMNS] */
    const int warpgroup = threadIdx.x / WARPGROUP, p = threadIdx.x % WARPGROUP;
    const int chunks = (K + CHUNK - 1) / CHUNK, steps = (K + STAGE_K - 1) / STAGE_K;
    const int tiles_m = (M + COLUMNS - 1) / COLUMNS;
    const long long tiles = (long long)tiles_m * ((N + ROWS - 1) / ROWS);
#ifndef TRITMARK_SIMULATOR
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(full + i, WARPGROUP), barrier_init(empty + i, 2 * 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif

    if (warpgroup == 0) {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
        const int part = p % 8, row_a = p / 8, part_w = p % (2 * PANELS), row_w = p / (2 * PANELS);
        const long long row_bytes = 16ll * chunks;
        int stage = 0;
        unsigned parity = 1;
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const int m0 = (int)(tile % tiles_m) * COLUMNS, n0 = (int)(tile / tiles_m) * ROWS;
            const int rows_a = M - m0 - row_a, rows_w = N - n0 - row_w; /* that there are from this thread's first on */
            const signed char *from_a = a + (m0 + row_a) * lda + 16 * part;
            const unsigned char *from_w = w + (n0 + row_w) * row_bytes + 16 * part_w;
            for (int step = 0; step < steps; step++) {
                unsigned char *const to_a = stages + stage * STAGE_BYTES + swizzled(row_a, part);
                unsigned char *const to_w =
                    stages + stage * STAGE_BYTES + COLUMNS * STAGE_K + (part_w * ROWS + row_w) * 16;
#ifndef TRITMARK_SIMULATOR
                barrier_wait(empty + stage, parity);
#endif
#pragma unroll
                for (int panel = 0; panel < PANELS; panel++) {
                    const int k = step * STAGE_K + DEPTH * panel + 16 * part;
                    if (fast) {
                        const int bytes = min(16, max(0, K - k));
#pragma unroll
                        for (int i = 0; i < COLUMNS / 16; i++)
                            copy16(
                                to_a + (COLUMNS * panel + 16 * i) * DEPTH, from_a + DEPTH * panel + 16 * i * lda,
                                16 * i < rows_a ? bytes : 0);
                    } else {
#pragma unroll 1
                        for (int i = 0; i < COLUMNS / 16; i++)
                            *(int4 *)(to_a + (COLUMNS * panel + 16 * i) * DEPTH) =
                                16 * i < rows_a ? activations16(from_a + DEPTH * panel + 16 * i * lda - k, k, K, false)
                                                : make_int4(0, 0, 0, 0);
                    }
                }
                const int there = 2 * PANELS * step + part_w < chunks ? rows_w : 0;
#pragma unroll
                for (int i = 0; i < ROWS; i += WARPGROUP / (2 * PANELS))
                    copy16(to_w + 16 * i, from_w + i * row_bytes, i < there ? 16 : 0);
                from_a += STAGE_K, from_w += STAGE_K / 4;
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
#endif
    } else {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
        const int lane = p % 32, warp = p / 32, g = lane / 4, t = lane % 4;
        const int row = (warpgroup - 1) * 64 * BLOCKS + 16 * warp + g; /* of the tile, of this lane's first weights */
        unsigned up = 1u << (6 - 2 * t);
#ifndef TRITMARK_SIMULATOR
        asm volatile("" : "+r"(up)); /* a factor: shifts have a pipe less */
#endif
        double *const factor = factors + ((warpgroup - 1) * 4 + warp) * COLUMNS;
        int stage = 0;
        unsigned parity = 0;
        int acc[BLOCKS][COLUMNS / 2];
        unsigned fragment[2][PANELS][BLOCKS][2][4]; /* half of a stage, 64 k of it, block of 64 rows, 32 k */
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const int m0 = (int)(tile % tiles_m) * COLUMNS, n0 = (int)(tile / tiles_m) * ROWS;
            if (kind) {
                float scale[(COLUMNS + 31) / 32];
#pragma unroll
                for (int i = 0; i < (COLUMNS + 31) / 32; i++)
                    scale[i] = m0 + lane + 32 * i < M ? scale_early(act_scale + m0 + lane + 32 * i) : 1.0f;
#pragma unroll
                for (int i = 0; i < (COLUMNS + 31) / 32; i++)
                    if (lane + 32 * i < COLUMNS)
                        factor[lane + 32 * i] = output_factor(weight_scale, scale[i]) * 0.015625;
            }
            int before = -1;
            uint4 words[PANELS][BLOCKS][2]; /* 64 k, rows of this lane */
            const auto fetch = [&](int half) {
                const uint4 *const weights =
                    (const uint4 *)(stages + stage * STAGE_BYTES + COLUMNS * STAGE_K) + half * PANELS * ROWS + row;
#pragma unroll
                for (int unit = 0; unit < PANELS; unit++)
#pragma unroll
                    for (int block = 0; block < BLOCKS; block++) {
                        words[unit][block][0] = weights[unit * ROWS + 64 * block];
                        words[unit][block][1] = weights[unit * ROWS + 64 * block + 8];
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
            const auto decode = [&](unsigned (&to)[PANELS][BLOCKS][2][4]) {
#pragma unroll
                for (int unit = 0; unit < PANELS; unit++)
#pragma unroll
                    for (int block = 0; block < BLOCKS; block++) {
                        const uint4 low = words[unit][block][0], high = words[unit][block][1];
                        unsigned (&f)[2][4] = to[unit][block];
                        f[0][0] = weights4(low.x, up), f[0][1] = weights4(high.x, up);
                        f[0][2] = weights4(low.y, up), f[0][3] = weights4(high.y, up);
                        f[1][0] = weights4(low.z, up), f[1][1] = weights4(high.z, up);
                        f[1][2] = weights4(low.w, up), f[1][3] = weights4(high.w, up);
                    }
            };
            const auto product = [&](const unsigned (&of)[PANELS][BLOCKS][2][4], const unsigned char *acts, int half,
                                     int add) {
                multiply_begin();
#pragma unroll
                for (int unit = 0; unit < PANELS; unit++) {
                    const int k64 = half * PANELS + unit;
#pragma unroll
                    for (int block = 0; block < BLOCKS; block++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            multiply(
                                acc[block], of[unit][block][i], acts + k64 / 2 * COLUMNS * DEPTH, k64 % 2 * 64 + 32 * i,
                                add || unit || i);
                }
                multiply_end();
            };
            begin();
            for (int step = 0; step < steps; step++) {
                const unsigned char *const acts = stages + stage * STAGE_BYTES;
                decode(fragment[0]);
                product(fragment[0], acts, 0, step);
                fetch(1);
                multiply_wait<1>();
#ifndef TRITMARK_SIMULATOR
                if (before >= 0 && lane == 0)
                    barrier_arrive(empty + before);
#endif
                decode(fragment[1]);
                product(fragment[1], acts, 1, 1);
                /* The next stage's weights are on their way while this one's are multiplied. */
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                before = stage;
                if (++stage == STAGES)
                    stage = 0, parity ^= 1;
#endif
                if (step + 1 < steps)
                    begin();
                multiply_wait<1>();
            }
            multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
            if (lane == 0)
                barrier_arrive(empty + before);
#endif
            __syncwarp();
            const bool whole = m0 + COLUMNS <= M && n0 + ROWS <= N;
            if (whole && kind == 1) {
                int *const to = (int *)out + (m0 + 2 * t) * (long long)N + n0 + row;
#pragma unroll
                for (int from = 0; from < COLUMNS / 2; from += 8) {
#pragma unroll
                    for (int i = from; i < from + 8; i++)
#pragma unroll
                        for (int block = 0; block < BLOCKS; block++)
                            acc[block][i] = __float_as_int(scaled(acc[block][i], factor[i / 4 * 8 + 2 * t + i % 2]));
#pragma unroll
                    for (int i = from; i < from + 8; i++)
#pragma unroll
                        for (int block = 0; block < BLOCKS; block++)
                            to[(i / 4 * 8 + i % 2) * (long long)N + 64 * block + i / 2 % 2 * 8] = acc[block][i];
                }
            } else if (whole && kind > 1 && N % 4 == 0) {
                unsigned short *const to =
                    (unsigned short *)out + (m0 + g) * (long long)N + n0 + row - g + (t & 1 ? 6 + 2 * t : 2 * t);
                if (kind == 2)
                    store_narrow<2>(acc, factor, to, N);
                else
                    store_narrow<3>(acc, factor, to, N);
            } else {
                char *const to = (char *)out + ((m0 + 2 * t) * (long long)N + n0 + row) * (kind > 1 ? 2 : 4);
#pragma unroll
                for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
#pragma unroll
                        for (int block = 0; block < BLOCKS; block++) {
                            const int m = 8 * j + 2 * t + e % 2, n = 64 * block + e / 2 * 8;
                            const int sum = acc[block][4 * j + e];
                            if (m < M - m0 && row + n < N - n0)
                                store(
                                    to, (8 * j + e % 2) * (long long)N + n, kind ? sum : sum >> 6,
                                    kind ? factor[m] : 0.0, kind);
                        }
            }
            __syncwarp();
        }
    }
}
