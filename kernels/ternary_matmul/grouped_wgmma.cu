/* ternary_matmul for many rows of activations with a scale for each group of weights (grouped.cuh), on Hopper's
 * asynchronous tensor cores (wgmma, 9.0a); weights are decoded in registers.
 *
 * Layout and ring of stages: as in gemm_wgmma.cu, with 64 rows of weights for each of two warpgroups. The scales of a
 * stage's groups come with it.
 *
 * Algorithm: the sums of a group are in int32. While the tensor cores multiply a unit (128 k of a group at most), the
 * warpgroup decodes the next. At the end of a group it adds scale times sum to float32 sums (promotion), while the
 * other warpgroup's unit is multiplied. So two sets of sums are in registers: tiles have at most 160 rows of
 * activations.
 * Each lane that has read a stage reports so itself, as in ternary_matmul_a16's gemm_wgmma.cu, because racecheck of
 * compute-sanitizer takes one report a warp for a hazard.
 * For few tiles, SPLIT blocks of a cluster share K and add their float32 sums in the order of their ranks.
 * Outputs are the sum times a float32 factor; from float64 where the factor is no normal float32.
 *
 * Limit: 2 M N K operations at 8192 a cycle and multiprocessor; with small groups the conversions of sums,
 * COLUMNS / 2 a group and lane.
 *
 * Macros: GROUP, those of wgmma_tiles.cuh; a panel is 128 k. EXPERTS: as in gemm_wgmma.cu.
 * Rates: `python suites/performance/grouped_products.py --rows 64 512 2048`. Versions and what lost:
 * docs/kernels/cuda_grouped.md. */
#define PANEL_CHUNKS 2
#define READERS (2 * 128) /* all that multiply */
#define STAGE_SCALES (STAGE_K / GROUP)
#include "../cuda/tiles/wgmma_int8.cuh"
#include "../cuda/tiles/wgmma_tiles.cuh"
#include "grouped.cuh"
#ifdef EXPERTS
#include "../cuda/tiles/expert_tiles.cuh"
#define JOB ExpertJob
#define COPYING 56 /* registers of a thread of the warpgroup that copies, and of those that multiply */
#define MULTIPLYING 224
#else
#define JOB Job
#define COPYING 40
#define MULTIPLYING 232
#endif

#define UNIT (GROUP < 128 ? GROUP : 128) /* k that are multiplied at a time */
#define LOAD (UNIT < 64 ? 64 : UNIT) /* k that are decoded at a time */
#define LOADS (STAGE_K / LOAD) /* in a stage */
#define SCALES (LOAD / UNIT) /* units in a load */
#define UNITS (LOADS * SCALES) /* in a stage */
static_assert(STAGE_K % GROUP == 0, "a stage has whole groups");
static_assert(BLOCKS == 1 && TAIL == 0, "registers");
static_assert(LOADS % 2 == 0, "two fragments in turn");

/* A number as a type. */
template <int VALUE> struct Number {
    static constexpr int value = VALUE;
};

/* The state of a thread that multiplies. */
struct Multiplier {
    const JOB &job;
    unsigned char *outs; /* of its warpgroup, as quick */
    float *quick; /* factors / 64, NaN if they are no normal float32 */
    const float *act_scale;
    float weight_scale;
    int M; /* end of the rows of activations of a tile */
    int warpgroup;
    unsigned up;
    Turn turn;

    /* The outputs of a tile of COLUMNS rows of activations, from row m0, and ROWS of weights, from n0. */
    __device__ __forceinline__ void tile(int m0, int n0);

    __device__ __forceinline__ float scaled(float sum, int m0, int m) const
    {
        const float by = quick[m];
        if (by == by)
            return __fmul_rn(sum, by);
        /* An act_scale beyond the last row is not read: its outputs are not stored. */
        const double factor = m0 + m < M ? output_factor(weight_scale, act_scale[m0 + m]) : 1.0;
        return __double2float_rn(__dmul_rn((double)sum, factor * 0.015625));
    }
};

__device__ __forceinline__ void Multiplier::tile(int m0, int n0)
{
    const int p = threadIdx.x % WARPGROUP, lane = p % 32, warp = p / 32, g = lane / 4, t = lane % 4;
    const int row = (warpgroup - 1) * 64 + 16 * warp + g; /* of the tile, of this lane's first weights */
    float total[1][COLUMNS / 2];
    int acc[COLUMNS / 2];
    unsigned fragment[2][LOAD / 64][2][4]; /* of two loads in turn: 64 k, 32 k of it */
    float scale[2][SCALES][2]; /* rows g and g + 8 */
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++)
        total[0][i] = 0;
    const auto put_factor = [&](int m, float scale) {
        const double factor = output_factor(weight_scale, scale) * 0.015625;
        quick[m] = factor > 0x1p-100 && factor < 0x1p90 ? (float)factor : nanf("");
    };
#ifdef EXPERTS
    static_assert(COLUMNS <= WARPGROUP, "a thread has one factor");
    const float own_scale = p < COLUMNS && m0 + p < M ? scale_early(act_scale + m0 + p) : 1.0f;
#else
    for (int m = p; m < COLUMNS; m += WARPGROUP)
        put_factor(m, m0 + m < M ? scale_early(act_scale + m0 + m) : 1.0f);
#endif
    const auto begin = [&]() {
#ifdef TRITMARK_SIMULATOR
        exchange_stage();
#else
        barrier_wait(job.full + turn.stage, turn.parity);
        if (!job.fast)
            multiply_sees();
#endif
    };
    const auto fetch = [&](unsigned (&to)[LOAD / 64][2][4], float (&by)[SCALES][2], int step, int load) {
        const unsigned char *const weights = job.stages + turn.stage * STAGE_BYTES + WEIGHTS_AT;
        const unsigned short *const scales = job.scales + turn.stage * STAGE_SCALES * ROWS + row;
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            const int group = (load * LOAD + i * UNIT) / GROUP;
            const bool there = (job.first + step) * STAGE_SCALES + group < job.K / GROUP;
#pragma unroll
            for (int h = 0; h < 2; h++)
                by[i][h] = there ? scale_of(scales[group * ROWS + 8 * h]) : 0.0f;
        }
#pragma unroll
        for (int unit = 0; unit < LOAD / 64; unit++) {
            const unsigned chunk = load * (LOAD / 64) + unit;
            const uint4 low = *(const uint4 *)(weights + weights_at(row, chunk));
            const uint4 high = *(const uint4 *)(weights + weights_at(row + 8, chunk));
            unsigned (&f)[2][4] = to[unit];
            f[0][0] = weights4(low.x, up), f[0][1] = weights4(high.x, up);
            f[0][2] = weights4(low.y, up), f[0][3] = weights4(high.y, up);
            f[1][0] = weights4(low.z, up), f[1][1] = weights4(high.z, up);
            f[1][2] = weights4(low.w, up), f[1][3] = weights4(high.w, up);
        }
    };
    const auto product = [&](const unsigned (&of)[LOAD / 64][2][4], const unsigned char *acts, int load, int unit) {
        multiply_begin();
#pragma unroll
        for (int i = 0; i < UNIT / 32; i++) {
            const int k32 = unit * (UNIT / 32) + i, k = load * LOAD + 32 * k32;
            multiply(acc, of[k32 / 2][k32 % 2], acts + k / 128 * COLUMNS * DEPTH, k % 128, i || k % GROUP);
        }
        multiply_end();
    };
    const auto promote = [&](const float (&by)[SCALES][2], int load, int unit) {
        if ((load * LOAD + (unit + 1) * UNIT) % GROUP)
            return; /* the group goes on */
#ifndef TRITMARK_SIMULATOR
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            asm volatile("" : "+r"(acc[i]) : : "memory"); /* nothing reads them before the wait */
#endif
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            total[0][i] = __fmaf_rn(by[unit][i / 2 % 2], __int2float_rn(acc[i]), total[0][i]);
#ifndef TRITMARK_SIMULATOR
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            asm volatile("" : "+f"(total[0][i])); /* and none behind the next product */
#endif
    };
    if (job.steps > 0) {
        begin();
        fetch(fragment[0], scale[0], 0, 0);
    }
    for (int step = 0; step < job.steps; step++) {
        const unsigned char *const acts = job.stages + turn.stage * STAGE_BYTES;
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            const int here = load % 2, there = 1 - here;
#pragma unroll
            for (int unit = 0; unit + 1 < SCALES; unit++) {
                product(fragment[here], acts, load, unit);
                multiply_wait<0>();
                promote(scale[here], load, unit);
            }
            product(fragment[here], acts, load, SCALES - 1);
            const int before = turn.stage;
            /* The next load is decoded while this one is multiplied. */
            if (load + 1 < LOADS)
                fetch(fragment[there], scale[there], step, load + 1);
            else {
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                turn.next();
#endif
                if (step + 1 < job.steps) {
                    begin();
                    fetch(fragment[there], scale[there], step + 1, 0);
                }
            }
            multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
            if (load + 1 == LOADS)
                barrier_arrive(job.empty + before);
#endif
            promote(scale[here], load, SCALES - 1);
        }
    }
    if (SPLIT > 1) {
        add_shares<SHARES>((float4 *)job.stages, total, job.steps > 0, job.rank, [&](int m, int n, float sum) {
            if (m0 + m < M && n0 + n < job.N) {
                const float value = scaled(sum, m0, m);
                const long long at = (m0 + m) * (long long)job.N + n0 + n;
                if (job.kind == 1)
                    ((float *)job.out)[at] = value;
                else
                    ((unsigned short *)job.out)[at] = narrowed(value, job.kind);
            }
        });
        return;
    }
#ifdef EXPERTS
    if (p < COLUMNS)
        put_factor(p, own_scale); /* which has arrived meanwhile */
#endif
    copies_out_read(); /* of the previous tile, so that their place is free */
    warpgroup_sync(warpgroup); /* and all factors are there */
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++)
        total[0][i] = scaled(total[0][i], m0, i / 4 * 8 + 2 * t + i % 2);
    if (copied_narrow(job.out, job.N, job.kind)) {
        unsigned char *const to = staged_at<COLUMNS>(outs);
        const auto put = [&](auto kind) {
#pragma unroll
            for (int sixteen = 0; sixteen < COLUMNS / 16; sixteen++) {
                unsigned pair[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    pair[i] = narrowed_pair<decltype(kind)::value>(
                        total[0][8 * sixteen + 2 * i], total[0][8 * sixteen + 2 * i + 1]);
                store_transposed(to + output_at<COLUMNS>(0, 16 * sixteen, 0), pair);
            }
        };
        if (job.kind == 2)
            put(Number<2>());
        else
            put(Number<3>());
#ifdef EXPERTS
        job.copy_outputs<COLUMNS>(outs, m0, n0, M);
#else
        job.copy_outputs<COLUMNS>(outs, m0, n0);
#endif
    } else {
        const long long at = (m0 + 2 * t) * (long long)job.N + n0 + row;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const int m = i / 4 * 8 + i % 2, n = i / 2 % 2 * 8;
            if (m + 2 * t < M - m0 && row + n < job.N - n0) {
                if (job.kind == 1)
                    ((float *)job.out)[at + m * (long long)job.N + n] = total[0][i];
                else
                    ((unsigned short *)job.out)[at + m * (long long)job.N + n] = narrowed(total[0][i], job.kind);
            }
        }
    }
    warpgroup_sync(warpgroup); /* before the next tile's factors */
}

/* grid, block, map_a, map_w, map_out, a, lda: as gemm_wgmma (gemm_wgmma.cu). w: aligned to 16 bytes. K a multiple of
 * GROUP. Dynamic shared memory: STAGES * (STAGE_BYTES + 16 + 2 * STAGE_SCALES * ROWS), 8 * COLUMNS, 2 * OUT_BYTES. */
#ifdef EXPERTS
extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_experts_grouped_wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_out, const signed char *a,
    const unsigned char *w, const float *act_scale, void *out, const float *weight_scales, const int *offsets,
    long long lda, long long expert_apart, int M, int N, int K, int kind, int E, int shares, unsigned long long *bad)
#else
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_grouped_wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_w,
    const __grid_constant__ TensorMap map_out, const signed char *a, const unsigned char *w, const float *act_scale,
    void *out, long long lda, float weight_scale, int M, int N, int K, int kind)
#endif
{
    extern __shared__ __align__(1024) unsigned char gemm_shared[];
#ifdef EXPERTS
    __shared__ ExpertTile tiles[LISTED];
    ExpertJob job(gemm_shared, &map_a, &map_out, a, lda, w, out, M, N, K, kind, 16 * expert_apart);
    const float weight_scale = 1;
#else
    const Job job(gemm_shared, &map_a, &map_w, &map_out, a, lda, w, out, M, N, K, kind, 0, 0);
#endif
    float *const quicks = (float *)job.behind; /* [2 warpgroups][COLUMNS] */
#ifdef TRITMARK_SIMULATOR
    if (blockIdx.x % SPLIT)
        return;
#endif
#ifdef EXPERTS
    job.begin(tiles, offsets, E, shares, bad);
#else
    job.begin();
    wait_for_the_one_before();
#endif
    if (job.warpgroup == 0) {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPYING));
#ifndef EXPERTS
        if (job.fast && job.p > 0)
            return;
#endif
#endif
        Turn turn = {0, 1};
        job.copy_stages(
            turn, [&](int row, int byte) { return activations16(a + row * lda, byte, K, job.fast); },
            2 + copied_narrow(out, N, kind));
    } else {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLYING));
#endif
        Multiplier here = {
            job,
            job.outs + (job.warpgroup - 1) * OUT_BYTES,
            quicks + (job.warpgroup - 1) * COLUMNS,
            act_scale,
            weight_scale,
            M,
            job.warpgroup,
            1u << (6 - 2 * (job.p % 4)),
            {0, 0}};
#ifndef TRITMARK_SIMULATOR
        asm volatile("" : "+r"(here.up)); /* a factor, because shifts have one pipe less */
#endif
#ifdef EXPERTS
        for (int tile = 0; tile < job.count; tile++) {
            here.M = tiles[tile].end, here.weight_scale = scale_early(weight_scales + tiles[tile].expert);
            here.tile(tiles[tile].m0, tiles[tile].n0);
        }
#else
        const Tiles tiles = job.tiles();
        for (int tile = blockIdx.x / SPLIT; tile < tiles.all; tile += gridDim.x / SPLIT)
            here.tile(tiles.at(tile).x, tiles.at(tile).y);
#endif
        copies_out_read();
    }
}
