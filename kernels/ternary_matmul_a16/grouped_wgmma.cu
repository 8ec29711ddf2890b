/* ternary_matmul_a16 for many rows of activations with a float16 scale for each group of weights, on Hopper's
 * asynchronous tensor cores (wgmma, 9.0a): weights (N, K) in row16_g32 to row16_g256, decoded in registers.
 *
 * Layout and ring of stages: as in gemm_wgmma.cu, with 64 rows of weights for each of two warpgroups. The scales of a
 * stage's groups come with it (STAGE_SCALES of wgmma_tiles.cuh), and a stage has whole groups.
 *
 * Algorithm: the sums of a group are accumulators of their own. While the tensor cores multiply a unit of it (64 k at
 * most), the warpgroup decodes the next. At the end of a group it adds scale times sum to float32 sums (promotion),
 * while the other warpgroup's unit is multiplied. So two sets of sums are in registers: tiles have at most 160 rows of
 * activations. For few tiles, SPLIT blocks of a cluster share K and add their sums in the order of their ranks.
 *
 * Limit: 2 M N K operations at 4096 a cycle and multiprocessor; with groups of 32 the products with scales, COLUMNS / 2
 * a group and lane.
 *
 * Macros: those of wgmma_tiles.cuh, PANELS (of 64 k) also 4; INPUT (see a16.cuh), GROUP.
 *
 * Rates: `python suites/performance/grouped_products.py --activations bfloat16`. Versions and what lost:
 * docs/kernels/cuda_a16.md. */
#include "a16.cuh"
#define PANEL_CHUNKS 1
#define READERS (2 * 128) /* all that multiply */
#define STAGE_SCALES (STAGE_K / GROUP)
#include "../cuda/tiles/grouped.cuh"
#include "../cuda/tiles/wgmma_tiles.cuh"
#include "wgmma.cuh"

#define UNIT (GROUP < 64 ? GROUP : 64) /* k that are decoded and multiplied at a time */
#define SLICES (UNIT / 16) /* 16 k of a unit */
#define UNITS (STAGE_K / UNIT) /* of a stage */
static_assert(STAGE_K % GROUP == 0, "a stage has whole groups");
static_assert(UNITS % 2 == 0, "units have two places in turn");
static_assert(BLOCKS == 1 && TAIL == 0, "registers");

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

    /* The outputs of a tile of COLUMNS rows of activations, from row m0, and ROWS of weights, from n0. */
    __device__ __forceinline__ void tile(int m0, int n0);

    /* Outputs as that kind into shared memory. */
    template <int KIND> __device__ __forceinline__ void stage_narrow(const float (&sums)[COLUMNS / 2]) const
    {
        unsigned char *const to = staged_at<COLUMNS>(outs);
#pragma unroll
        for (int sixteen = 0; sixteen < COLUMNS / 16; sixteen++) {
            const float *const of = sums + 8 * sixteen;
            unsigned pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                pair[i] = narrowed_pair<KIND>(of[2 * i] * weight_scale, of[2 * i + 1] * weight_scale);
            store_transposed(to + output_at<COLUMNS>(0, 16 * sixteen, 0), pair);
        }
    }
};

__device__ __forceinline__ void Multiplier::tile(int m0, int n0)
{
    const int lane = job.p % 32, warp = job.p / 32, g = lane / 4, t = lane % 4;
    const int row = (job.warpgroup - 1) * 64 + 16 * warp + g; /* of the tile, of this lane's first weights */
    float total[1][COLUMNS / 2], acc[COLUMNS / 2];
    unsigned fragment[2][SLICES][4]; /* of two units in turn */
    float scale[2][2]; /* of the units' groups, rows g and g + 8 */
    uint4 words[2]; /* of 64 k, these rows */
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++)
        total[0][i] = 0.0f;
    const auto begin = [&]() {
#ifdef TRITMARK_SIMULATOR
        exchange_stage();
#else
        barrier_wait(job.full + turn.stage, turn.parity);
        if (!job.fast)
            multiply_sees();
#endif
    };
    const auto decode = [&](int step, int unit) {
        if (unit * UNIT % CHUNK == 0) {
            const unsigned char *const weights = job.stages + turn.stage * STAGE_BYTES + WEIGHTS_AT;
#pragma unroll
            for (int high = 0; high < 2; high++)
                words[high] = *(const uint4 *)(weights + weights_at(row + 8 * high, unit * UNIT / CHUNK));
        }
        const int end = (unit + 1) * UNIT;
        if (end % GROUP == 0) {
            const unsigned short *const scales = job.scales + turn.stage * STAGE_SCALES * ROWS + row;
            const int group = end / GROUP - 1;
            const bool there = (job.first + step) * STAGE_SCALES + group < job.K / GROUP;
#pragma unroll
            for (int high = 0; high < 2; high++)
                scale[unit % 2][high] = there ? scale_of(scales[group * ROWS + 8 * high]) : 0.0f;
        }
#pragma unroll
        for (int high = 0; high < 2; high++)
#pragma unroll
            for (int i = 0; i < SLICES; i++) {
                const int slice = (unit * SLICES + i) % 4;
                const uint4 of = words[high];
                const unsigned word = slice == 0 ? of.x : slice == 1 ? of.y : slice == 2 ? of.z : of.w;
                const unsigned fields = __byte_perm(word, 0, bytes);
                fragment[unit % 2][i][high] = weights2(fields, mask[0], step_of[0], back_of[0]);
                fragment[unit % 2][i][2 + high] = weights2(fields, mask[1], step_of[1], back_of[1]);
            }
    };
    const auto product = [&](const unsigned char *acts, int unit) {
        multiply_begin();
#pragma unroll
        for (int i = 0; i < SLICES; i++) {
            const int k = unit * UNIT + 16 * i;
            multiply(acc, fragment[unit % 2][i], acts + k / 64 * COLUMNS * DEPTH, k % 64 * 2, k % GROUP != 0);
        }
        multiply_end();
    };
    const auto promote = [&](int unit) {
#ifndef TRITMARK_SIMULATOR
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            asm volatile("" : "+f"(acc[i]) : : "memory"); /* nothing reads them before the wait */
#endif
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            total[0][i] = __fmaf_rn(scale[unit % 2][i / 2 % 2], acc[i], total[0][i]);
#ifndef TRITMARK_SIMULATOR
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            asm volatile("" : "+f"(total[0][i])); /* and none behind the next product */
#endif
    };
    if (job.steps > 0) {
        begin();
        decode(0, 0);
    }
    for (int step = 0; step < job.steps; step++) {
        const unsigned char *const acts = job.stages + turn.stage * STAGE_BYTES;
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            product(acts, unit);
            if (unit * UNIT % GROUP)
                multiply_wait<1>(); /* the unit before in this group, whose place is the next one's */
            /* The next unit is decoded while this one is multiplied. */
#ifndef TRITMARK_SIMULATOR
            const int before = turn.stage;
#endif
            if (unit + 1 < UNITS)
                decode(step, unit + 1);
            else {
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                turn.next();
#endif
                if (step + 1 < job.steps) {
                    begin();
                    decode(step + 1, 0);
                }
            }
            if ((unit + 1) * UNIT % GROUP == 0) {
                multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
                if (unit + 1 == UNITS)
                    barrier_arrive(job.empty + before);
#endif
                promote(unit);
            }
        }
    }
    __syncwarp();
    if (SPLIT > 1) {
        add_shares<SHARES>((float4 *)job.stages, total, job.steps > 0, job.rank, [&](int m, int n, float sum) {
            if (m0 + m < job.M && n0 + n < job.N)
                store_float(job.out, (m0 + m) * (long long)job.N + n0 + n, sum * weight_scale, job.kind);
        });
        return;
    }
    if (copied_narrow(job.out, job.N, job.kind)) {
        copies_out_read(); /* of the previous tile, so that their place is free */
        warpgroup_sync(job.warpgroup);
        if (job.kind == 2)
            stage_narrow<2>(total[0]);
        else
            stage_narrow<3>(total[0]);
        job.copy_outputs<COLUMNS>(outs, m0, n0);
    } else {
        const long long at = (m0 + 2 * t) * (long long)job.N + n0 + row;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const int m = i / 4 * 8 + i % 2, n = i / 2 % 2 * 8;
            if (m + 2 * t < job.M - m0 && row + n < job.N - n0)
                store_float(job.out, at + m * (long long)job.N + n, total[0][i] * weight_scale, job.kind);
        }
    }
    __syncwarp();
}

/* As gemm_a16_wgmma (gemm_wgmma.cu); w: aligned to 16 bytes; mixed, mixed_wide: 0. K a multiple of GROUP. Dynamic shared memory: STAGES * (STAGE_BYTES + 16 + 2 * STAGE_SCALES * ROWS), 2 * OUT_BYTES. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_a16_grouped_wgmma(
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
        for (int tile = blockIdx.x / SPLIT; tile < tiles.all; tile += gridDim.x / SPLIT)
            here.tile(tiles.at(tile).x, tiles.at(tile).y);
        copies_out_read();
    }
}
