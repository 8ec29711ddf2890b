/* ternary_matmul for many rows of activations on Hopper's asynchronous tensor cores (wgmma, 9.0a): weights (N, K) in
 * row16, decoded in registers.
 *
 * Layout: a block makes tiles of COLUMNS rows of activations times ROWS rows of weights. Weights are operand A of
 * m64nNk32, from registers: a lane needs field t of each word of its two rows, so four lanes read each word and each
 * makes one register of it. Activations are operand B, as they lie in memory.
 *
 * Algorithm: one thread has the bulk tensor copy engine bring 128 or 256 k of both (a stage) into a ring in shared
 * memory, swizzled; two warpgroups multiply 64 * BLOCKS rows of weights each. weights4 (common.cuh) decodes 64 times
 * the weight, so acc = 64 * sum(w * a) is exact for K < 2^18. 16-bit outputs leave through shared memory as boxes while
 * the next tile is multiplied. bfloat16 is made of a float32 product; outputs that this may round incorrectly are made
 * again from float64.
 * For few tiles, SPLIT blocks of a cluster share K and add their sums through distributed shared memory (add_shares).
 * The engine writes through the asynchronous proxy, which wgmma reads, so the barrier that counts its bytes is enough.
 * The first warpgroup copies rows that are not aligned to 16 bytes, and the reader fences; gemm_align.cu aligns them
 * first.
 *
 * Limit: 2 M N K operations at 8192 a cycle and multiprocessor; ends of tiles; latency for few rows. A stage of 128 k
 * takes 128 * COLUMNS + 32 * ROWS bytes from L2 for 256 * COLUMNS * ROWS operations, so tiles are wide in weights.
 *
 * Macros: those of wgmma_tiles.cuh; a panel is 128 k. EXPERTS: if defined, rows of activations have the weights of their
 * expert (ternary_matmul_experts, expert_tiles.cuh).
 * Rates: `python suites/performance/gpu_peers.py --rows 64 512 2048`. Versions: docs/kernels/cuda_gemm.md. */
#define PANEL_CHUNKS 2
#define READERS (2 * 4) /* one for each warp that multiplies */
#include "../cuda/tiles/wgmma_int8.cuh"
#include "../cuda/tiles/wgmma_tiles.cuh"
#include "common.cuh"
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

/* The float32 next to sum * factor. The sum becomes a double by placing its bits in one, because conversions are
 * slow. */
__device__ __forceinline__ float scaled(int sum, double factor)
{
    const double wide = __longlong_as_double(0x4330000000000000ll | (unsigned)(sum ^ (int)0x80000000));
    return __double2float_rn(__dmul_rn(__dsub_rn(wide, 4503601774854144.0), factor));
}

/* Added to the lower half of a float32. The result is below DOUBTFUL if and only if the float32 is within 2 steps of
 * the middle between two bfloat16, so that the exact product may round to the other one. */
#define MIDDLE 0x8002
#define DOUBTFUL 5
#define MOST_QUICK_K (1 << 17) /* so that 64 * sum is a float32 */

/* One warp writes the 16-bit outputs of a tile into shared memory, at output_at. `quick`: the factors as float32, NaN
 * if float32 does not suffice. */
template <int KIND, int WIDTH>
__device__ __forceinline__ void stage_narrow(
    int (&acc)[BLOCKS][WIDTH / 2], const double *factor, const float *quick, bool slow, unsigned char *outs)
{
    const int lane = threadIdx.x % 32, t = lane % 4;
    unsigned char *const to = staged_at<WIDTH>(outs);
    const auto put = [&](int sixteen, int block, const unsigned (&pair)[4]) {
        store_transposed(to + output_at<WIDTH>(block, 16 * sixteen, 0), pair);
    };
    const auto put_exact = [&](int sixteen, int block, const int (&sums)[8]) {
        const double *const by = factor + 16 * sixteen + 2 * t;
        unsigned pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pair[i] =
                narrowed_pair<KIND>(scaled(sums[2 * i], by[i / 2 * 8]), scaled(sums[2 * i + 1], by[i / 2 * 8 + 1]));
        put(sixteen, block, pair);
    };
    const auto sums_of = [&](int sixteen, int block, int (&sums)[8]) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] = acc[block][8 * sixteen + i];
    };
    if constexpr (KIND != 2) { /* float16 has other middles, and is rare */
#pragma unroll
        for (int sixteen = 0; sixteen < WIDTH / 16; sixteen++)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                int sums[8];
                sums_of(sixteen, block, sums);
                put_exact(sixteen, block, sums);
            }
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i += 32)
            slow |= lane + i < WIDTH && isnan(quick[lane + i]);
        unsigned doubts = 0; /* a bit for each 16 rows of activations, the same in all lanes */
#pragma unroll
        for (int sixteen = 0; sixteen < WIDTH / 16; sixteen++) {
            unsigned least = 0xffffffffu; /* of the lower halves plus MIDDLE */
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                int sums[8];
                sums_of(sixteen, block, sums);
                unsigned pair[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    /* Two roundings, of the factor and here: within 1.5 steps of the exact product, and that within 0.5
                     * of the float32 next to it. */
                    const float2 by = *(const float2 *)(quick + 16 * sixteen + i / 2 * 8 + 2 * t);
                    const float first = __fmul_rn(__int2float_rn(sums[2 * i]), by.x),
                                second = __fmul_rn(__int2float_rn(sums[2 * i + 1]), by.y);
                    pair[i] = narrowed_pair<2>(first, second);
                    least = __viaddmin_u16x2(
                        __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x5410), MIDDLE << 16 | MIDDLE,
                        least);
                }
                put(sixteen, block, pair);
            }
            const bool doubtful = slow || (least & 0xffffu) < DOUBTFUL || least >> 16 < DOUBTFUL;
            doubts |= (unsigned)__any_sync(0xffffffffu, doubtful) << sixteen;
        }
        /* Exists once, so that it is fetched only when it runs: of a tile of 128 x 256 by every third warp. */
#pragma unroll 1
        while (doubts) {
            const int which = __ffs((int)doubts) - 1;
            doubts &= doubts - 1;
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                int sums[8];
                sums_of(0, block, sums);
#pragma unroll
                for (int sixteen = 1; sixteen < WIDTH / 16; sixteen++)
                    if (which == sixteen)
                        sums_of(sixteen, block, sums);
                put_exact(which, block, sums);
            }
        }
    }
}

/* The state of a thread that multiplies. */
struct Multiplier {
    const JOB &job;
    unsigned char *outs; /* of its warpgroup, as factor and quick */
    double *factor;
    float *quick;
    const float *act_scale;
    float weight_scale;
    int M; /* end of the rows of activations of a tile */
    int warpgroup;
    unsigned up;
    Turn turn;

    /* The outputs of a tile of WIDTH rows of activations, from row m0, and ROWS of weights, from n0. */
    template <int WIDTH> __device__ __forceinline__ void tile(int m0, int n0);
};

template <int WIDTH> __device__ __forceinline__ void Multiplier::tile(int m0, int n0)
{
    const int p = threadIdx.x % WARPGROUP, lane = p % 32, warp = p / 32, g = lane / 4, t = lane % 4;
    const int row = (warpgroup - 1) * 64 * BLOCKS + 16 * warp + g; /* of the tile, of this lane's first weights */
    int acc[BLOCKS][WIDTH / 2];
    unsigned fragment[2][PANELS][BLOCKS][2][4]; /* half of a stage, 64 k of it, block of 64 rows, 32 k */
    const auto put_factor = [&](int m, float scale) {
        factor[m] = output_factor(weight_scale, scale) * 0.015625;
        /* So that the product with a sum is a normal float32. */
        quick[m] = factor[m] > 0x1p-100 && factor[m] < 0x1p90 ? (float)factor[m] : nanf("");
    };
#ifdef EXPERTS
    static_assert(WIDTH <= WARPGROUP, "a thread has one factor");
    const float own_scale = job.kind && p < WIDTH && m0 + p < M ? scale_early(act_scale + m0 + p) : 1.0f;
#else
    if (job.kind)
        for (int m = p; m < WIDTH; m += WARPGROUP)
            put_factor(m, m0 + m < M ? scale_early(act_scale + m0 + m) : 1.0f);
#endif
    int before = -1;
    uint4 words[PANELS][BLOCKS][2]; /* 64 k, rows of this lane */
    const auto fetch = [&](int half) {
        const unsigned char *const weights = job.stages + turn.stage * STAGE_BYTES + WEIGHTS_AT;
#pragma unroll
        for (int unit = 0; unit < PANELS; unit++)
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                const unsigned chunk = half * PANELS + unit;
#pragma unroll
                for (int i = 0; i < 2; i++)
                    words[unit][block][i] = *(const uint4 *)(weights + weights_at(row + 64 * block + 8 * i, chunk));
            }
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
    const auto product = [&](const unsigned (&of)[PANELS][BLOCKS][2][4], const unsigned char *acts, int half, int add) {
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
    if (SPLIT == 1 || job.steps > 0)
        begin();
    for (int step = 0; step < job.steps; step++) {
        const unsigned char *const acts = job.stages + turn.stage * STAGE_BYTES;
        decode(fragment[0]);
        product(fragment[0], acts, 0, step);
        fetch(1);
        multiply_wait<1>();
#ifndef TRITMARK_SIMULATOR
        if (before >= 0 && lane == 0)
            barrier_arrive(job.empty + before);
#endif
        decode(fragment[1]);
        product(fragment[1], acts, 1, 1);
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
    if (lane == 0 && (SPLIT == 1 || job.steps > 0))
        barrier_arrive(job.empty + before);
#endif
    if (SPLIT > 1) {
        add_shares<SHARES>((int4 *)job.stages, acc, job.steps > 0, job.rank, [&](int m, int n, int sum) {
            if (m0 + m < M && n0 + n < job.N)
                store(
                    job.out, (m0 + m) * (long long)job.N + n0 + n, job.kind ? sum : sum >> 6,
                    job.kind ? factor[m] : 0.0, job.kind);
        });
        return;
    }
#ifdef EXPERTS
    if (job.kind && p < WIDTH)
        put_factor(p, own_scale); /* which has arrived meanwhile */
#endif
    copies_out_read(); /* of the previous tile, so that their place is free */
    warpgroup_sync(warpgroup); /* and all factors are there */
    const bool narrow = copied_narrow(job.out, job.N, job.kind), whole = m0 + WIDTH <= M && n0 + ROWS <= job.N;
    if (whole && job.kind == 1) {
        int *to = (int *)job.out + (m0 + 2 * t) * (long long)job.N + n0 + row;
#pragma unroll
        for (int from = 0; from < WIDTH / 2; from += 4, to += 8 * (long long)job.N) {
#pragma unroll
            for (int i = from; i < from + 4; i++)
#pragma unroll
                for (int block = 0; block < BLOCKS; block++)
                    acc[block][i] = __float_as_int(scaled(acc[block][i], factor[i / 4 * 8 + 2 * t + i % 2]));
#pragma unroll
            for (int i = from; i < from + 4; i++)
#pragma unroll
                for (int block = 0; block < BLOCKS; block++)
                    to[i % 2 * (long long)job.N + 64 * block + i / 2 % 2 * 8] = acc[block][i];
        }
    } else if (narrow) {
        if (job.kind == 2)
            stage_narrow<2, WIDTH>(acc, factor, quick, job.steps > MOST_QUICK_K / STAGE_K, outs);
        else
            stage_narrow<3, WIDTH>(acc, factor, quick, true, outs);
#ifdef EXPERTS
        job.copy_outputs<WIDTH>(outs, m0, n0, M);
#else
        job.copy_outputs<WIDTH>(outs, m0, n0);
#endif
    } else {
        char *const to = (char *)job.out + ((m0 + 2 * t) * (long long)job.N + n0 + row) * (job.kind > 1 ? 2 : 4);
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int block = 0; block < BLOCKS; block++) {
                    const int m = 8 * j + 2 * t + e % 2, n = 64 * block + e / 2 * 8;
                    const int sum = acc[block][4 * j + e];
                    if (m < M - m0 && row + n < job.N - n0)
                        store(
                            to, (8 * j + e % 2) * (long long)job.N + n, job.kind ? sum : sum >> 6,
                            job.kind ? factor[m] : 0.0, job.kind);
                }
    }
    warpgroup_sync(warpgroup); /* before the next tile's factors */
}

/* grid: any number of blocks, with SPLIT > 1 just SPLIT a tile; block: THREADS threads. Dynamic shared memory:
 * STAGES * (STAGE_BYTES + 16), 24 * COLUMNS, 2 * OUT_BYTES.
 *
 * map_a: activations, K bytes in M rows, boxes of DEPTH bytes in BOX rows, swizzled in 128 bytes; not used if a or lda
 * is no multiple of 16. map_w: weights (N, K) in row16, boxes of 32 * PANELS bytes in ROWS rows, swizzled in as many
 * bytes. map_out: outputs of 16 bits, boxes of 64 in BOX rows, swizzled in 128 bytes; not used if copied_narrow is
 * false. a: lda bytes between its rows. mixed, mixed_wide: see Tiles; 0 without TAIL. K < 2^18.
 *
 * With EXPERTS, grid: so many blocks that none has more than LISTED tiles of `shares` (experts.cuh) times strips;
 * expert_apart: 16 bytes between the weights of experts. */
#ifdef EXPERTS
extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_experts_wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_out, const signed char *a,
    const unsigned char *w, const float *act_scale, void *out, const float *weight_scales, const int *offsets,
    long long lda, long long expert_apart, int M, int N, int K, int kind, int E, int shares, unsigned long long *bad)
#else
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_w,
    const __grid_constant__ TensorMap map_out, const signed char *a, const unsigned char *w, const float *act_scale,
    void *out, long long lda, float weight_scale, int M, int N, int K, int kind, int mixed, int mixed_wide)
#endif
{
    extern __shared__ __align__(1024) unsigned char gemm_shared[];
#ifdef EXPERTS
    __shared__ ExpertTile tiles[LISTED];
    ExpertJob job(gemm_shared, &map_a, &map_out, a, lda, w, out, M, N, K, kind, 16 * expert_apart);
    const float weight_scale = 1;
#else
    const Job job(gemm_shared, &map_a, &map_w, &map_out, a, lda, w, out, M, N, K, kind, mixed, mixed_wide);
#endif
    double *const factors = (double *)job.behind; /* [2 warpgroups][COLUMNS] */
    float *const quicks = (float *)(factors + 2 * COLUMNS); /* the same */
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
            factors + (job.warpgroup - 1) * COLUMNS,
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
            here.tile<COLUMNS>(tiles[tile].m0, tiles[tile].n0);
        }
#else
        const Tiles tiles = job.tiles();
        int tile = blockIdx.x / SPLIT;
        for (; tile < tiles.wide; tile += gridDim.x / SPLIT)
            here.tile<COLUMNS>(tiles.at(tile).x, tiles.at(tile).y);
#if TAIL
        for (; tile < tiles.all; tile += gridDim.x)
            here.tile<TAIL>(tiles.at(tile).x, tiles.at(tile).y);
#endif
#endif
        copies_out_read();
    }
}
