/* ternary_matmul_a16 for many rows of activations on Hopper's asynchronous tensor cores (wgmma, 9.0a): weights (N, K)
 * in row16, decoded in registers.
 *
 * Layout: a block makes tiles of COLUMNS rows of activations times ROWS rows of weights. Weights are operand A of
 * m64nNk16, from registers: of 16 weights a lane needs four, one byte pair of a word and two fields of it, by 5
 * instructions. Activations are operand B, as they lie in memory.
 *
 * Algorithm: as in ternary_matmul's gemm_wgmma.cu, with which it shares wgmma_tiles.cuh. One thread has the bulk tensor
 * copy engine fill a ring of stages of 64 or 128 k; two warpgroups multiply 64 * BLOCKS rows of weights each. 16-bit
 * outputs leave through shared memory as boxes while the next tile is multiplied. The last tiles may have fewer columns
 * (TAIL). For few tiles, SPLIT blocks of a cluster share K and add their sums through distributed shared memory.
 * Each lane that has read a stage reports so itself: racecheck of compute-sanitizer reports one report a warp as a
 * hazard.
 *
 * Limit: 2 M N K operations at 4096 a cycle and multiprocessor. A stage of 64 k takes 128 * COLUMNS + 16 * ROWS bytes
 * from L2 for 128 * COLUMNS * ROWS operations, so tiles are wide in weights.
 *
 * Macros: those of wgmma_tiles.cuh; INPUT (see a16.cuh), SLICES (of 16 k that are decoded at a time: 2, 4 where PANELS
 * is 2).
 *
 * Rates: `python suites/performance/gpu_peers.py --activations bfloat16`. Versions: docs/kernels/cuda_a16.md. */
#include "a16.cuh"
#define PANEL_CHUNKS 1
#define READERS (2 * 128) /* all that multiply */
#include "../cuda/tiles/wgmma_tiles.cuh"
#include "wgmma.cuh"

#define PARTS (4 * PANELS / SLICES) /* of a stage, each decoded and multiplied while the one before is multiplied */
static_assert(PARTS > 1, "a stage is used when the first part of the next is on its way");

/* One warp writes the outputs of a tile as that kind into shared memory, at output_at. */
template <int KIND, int WIDTH>
__device__ __forceinline__ void stage_narrow(const float (&acc)[BLOCKS][WIDTH / 2], float scale, unsigned char *outs)
{
    unsigned char *const to = staged_at<WIDTH>(outs);
#pragma unroll
    for (int sixteen = 0; sixteen < WIDTH / 16; sixteen++)
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            const float *const sums = acc[block] + 8 * sixteen;
            unsigned pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                pair[i] = narrowed_pair<KIND>(sums[2 * i] * scale, sums[2 * i + 1] * scale);
            store_transposed(to + output_at<WIDTH>(block, 16 * sixteen, 0), pair);
        }
}

/* The state of a thread that multiplies. */
struct Multiplier {
    const Job &job;
    float weight_scale;
    unsigned char *outs; /* of its warpgroup */
    unsigned bytes, mask[2], step_of[2], back_of[2];
    Turn turn;

    /* Of 16 weights a lane has 2t, 2t + 1 and 8 more: two bytes of a word, fields t / 2 and t / 2 + 2 of them. */
    __device__ __forceinline__ Multiplier(const Job &job, float weight_scale)
        : job(job), weight_scale(weight_scale), outs(job.outs + (job.warpgroup - 1) * OUT_BYTES), turn{0, 0}
    {
        const int t = job.p % 4;
        bytes = t % 2 ? 0x4342u : 0x4140u;
        mask[0] = 0x00030003u << t / 2 * 2, mask[1] = 0x00300030u << t / 2 * 2;
        step_of[0] = twice(STEP(t / 2)), step_of[1] = twice(STEP(t / 2 + 2));
        back_of[0] = twice(BACK(t / 2)), back_of[1] = twice(BACK(t / 2 + 2));
    }

    /* The outputs of a tile of WIDTH rows of activations, from row m0, and ROWS of weights, from n0. */
    template <int WIDTH> __device__ __forceinline__ void tile(int m0, int n0);
};

template <int WIDTH> __device__ __forceinline__ void Multiplier::tile(int m0, int n0)
{
    const int lane = job.p % 32, warp = job.p / 32, g = lane / 4, t = lane % 4;
    const int row = (job.warpgroup - 1) * 64 * BLOCKS + 16 * warp + g; /* of the tile, of this lane's first weights */
    float acc[BLOCKS][WIDTH / 2];
    unsigned fragment[2][BLOCKS][SLICES][4]; /* part, block of 64 rows, 16 k */
    uint4 words[2][BLOCKS][2]; /* panel, 64 k, rows of this lane */
#ifndef TRITMARK_SIMULATOR
    int before = -1;
#endif
    const auto fetch = [&](int panel) {
        const unsigned char *const weights = job.stages + turn.stage * STAGE_BYTES + WEIGHTS_AT;
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                words[panel % 2][block][i] = *(const uint4 *)(weights + weights_at(row + 64 * block + 8 * i, panel));
    };
    const auto begin = [&]() {
#ifdef TRITMARK_SIMULATOR
        exchange_stage();
#else
        barrier_wait(job.full + turn.stage, turn.parity);
        if (!job.fast)
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
    const auto product = [&](const unsigned (&of)[BLOCKS][SLICES][4], const unsigned char *acts, int part, int add) {
        multiply_begin();
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
#pragma unroll
            for (int i = 0; i < SLICES; i++)
                multiply(
                    acc[block], of[block][i], acts + part * SLICES / 4 * COLUMNS * DEPTH, (part * SLICES + i) % 4 * 32,
                    add || i);
        multiply_end();
    };
    if (SPLIT == 1 || job.steps > 0)
        begin();
    for (int step = 0; step < job.steps; step++) {
        const unsigned char *const acts = job.stages + turn.stage * STAGE_BYTES;
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            decode(fragment[part % 2], part);
            product(fragment[part % 2], acts, part, step || part);
            if (part + 1 < PARTS) {
                if ((part + 1) * SLICES % 4 == 0)
                    fetch((part + 1) * SLICES / 4);
                multiply_wait<1>();
            }
#ifndef TRITMARK_SIMULATOR
            if (part == 0 && before >= 0)
                barrier_arrive(job.empty + before);
#endif
        }
        /* The next stage's weights are loaded while this one's are multiplied. */
#ifdef TRITMARK_SIMULATOR
        exchange_stage();
#else
        before = turn.stage;
        turn.next();
#endif
        if (step + 1 < job.steps)
            begin();
        multiply_wait<1>();
    }
    multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
    if (SPLIT == 1 || before >= 0)
        barrier_arrive(job.empty + before);
#endif
    __syncwarp();
    if (SPLIT > 1) {
        add_shares<SHARES>((float4 *)job.stages, acc, job.steps > 0, job.rank, [&](int m, int n, float sum) {
            if (m0 + m < job.M && n0 + n < job.N)
                store_float(job.out, (m0 + m) * (long long)job.N + n0 + n, sum * weight_scale, job.kind);
        });
        return;
    }
    if (copied_narrow(job.out, job.N, job.kind)) {
        copies_out_read(); /* of the previous tile, so that their place is free */
        warpgroup_sync(job.warpgroup);
        if (job.kind == 2)
            stage_narrow<2, WIDTH>(acc, weight_scale, outs);
        else
            stage_narrow<3, WIDTH>(acc, weight_scale, outs);
        job.copy_outputs<WIDTH>(outs, m0, n0);
    } else {
        const bool whole = m0 + WIDTH <= job.M && n0 + ROWS <= job.N;
        char *const to = (char *)job.out + ((m0 + 2 * t) * (long long)job.N + n0 + row) * (job.kind == 1 ? 4 : 2);
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int block = 0; block < BLOCKS; block++) {
                    const int m = 8 * j + 2 * t + e % 2, n = 64 * block + e / 2 * 8;
                    if (whole || (m < job.M - m0 && row + n < job.N - n0))
                        store_float(
                            to, (8 * j + e % 2) * (long long)job.N + n, acc[block][4 * j + e] * weight_scale, job.kind);
                }
    }
    __syncwarp();
}

/* grid: any number of blocks, with SPLIT > 1 just SPLIT a tile; block: THREADS threads. Dynamic shared memory:
 * STAGES * (STAGE_BYTES + 16), 2 * OUT_BYTES.
 *
 * map_a: activations, 2 * K bytes in M rows, boxes of DEPTH bytes in BOX rows, swizzled in 128 bytes; not used if a or
 * lda is no multiple of 16. map_w: weights (N, K) in row16, boxes of 16 * PANELS bytes in ROWS rows, swizzled in as
 * many bytes if those are more than 16. map_out: outputs of 16 bits, boxes of 64 in BOX rows, swizzled in 128 bytes;
 * not used if copied_narrow is false. a: aligned to its element, lda bytes between its rows. kind: 1 float32, 2
 * bfloat16, 3 float16. mixed, mixed_wide: see Tiles; 0 without TAIL. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_a16_wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_w,
    const __grid_constant__ TensorMap map_out, const unsigned short *a, const unsigned char *w, void *out,
    long long lda, float weight_scale, int M, int N, int K, int kind, int mixed, int mixed_wide)
{
    extern __shared__ __align__(1024) unsigned char gemm_shared[];
    const Job job(gemm_shared, &map_a, &map_w, &map_out, a, lda, w, out, M, N, K, kind, mixed, mixed_wide);
#ifdef TRITMARK_SIMULATOR
    if (blockIdx.x % SPLIT)
        return;
#endif
    job.begin();
    wait_for_the_one_before();
    if (job.warpgroup == 0) {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (job.fast && job.p > 0)
            return;
#endif
        Turn turn = {0, 1};
        job.copy_stages(
            turn,
            [&](int row, int byte) {
                return activations8((const unsigned short *)((const char *)a + row * lda), byte / 2, K, job.fast);
            },
            copied_narrow(out, N, kind) ? 2 : 0);
    } else {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
        Multiplier here(job, weight_scale);
        const Tiles tiles = job.tiles();
        int tile = blockIdx.x / SPLIT;
        for (; tile < tiles.wide; tile += gridDim.x / SPLIT)
            here.tile<COLUMNS>(tiles.at(tile).x, tiles.at(tile).y);
#if TAIL
        for (; tile < tiles.all; tile += gridDim.x)
            here.tile<TAIL>(tiles.at(tile).x, tiles.at(tile).y);
#endif
        copies_out_read();
    }
}
