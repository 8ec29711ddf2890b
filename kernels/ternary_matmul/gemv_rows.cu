/* ternary_matmul for M = 1 on the tensor cores: weights (N, K) in row16, each read once, and every row's sum made by
 * one warp.
 *
 * The story (v1 is tiled.cu, v2 gemv_dp4a.cu, v3 gemv_mma.cu, which explains how weights are decoded):
 *   v4, here: v3 uses one of the 8 columns of B for the one row of activations and splits K among warps, which add
 *      their sums in shared memory behind a barrier. Here the columns hold SEG segments of K instead: column j the
 *      activations of segment j % SEG, so that the 8 rows of a fragment of A are SEG segments of 8 / SEG rows of
 *      weights. Only element (g, g) of each fragment of C is used: an eighth of the product, as in v3, but each lane's
 *      16 bytes lie side by side in memory (512 bytes of a row in one load for SEG = 8), a warp owns whole rows, and
 *      its sums end in a reduction of registers. One barrier is left, for the activations; the weights are asked for
 *      before it.
 *   Tried after that: dividing the factor of the outputs before the barrier (the compiler puts it behind the sums,
 *   where float32 outputs take 0.12
 *      us longer than int32 ones), and two 16 bytes of activations asked for together. Slower: 3.00 for 2.69 us at 2560
 *      x 2560, 5.75 for 5.17 at 13824 x 2560, 8.60 for 7.78 at 20480 x 3200; so both are gone again. In gemv_dp4a.cu
 *      the early factor pays and stays.
 *   Tried in a kernel like this one, measured by turns with v4 (2.76 us at 2560 x 2560, float32) on an H200. What comes
 *   after the weights' arrival counts, not the order of loads before it:
 *      - 10 warps a block, activations by cp.async behind the weights 2.78, before them 2.93; before them and the
 *        block's rows first fetched into L2, by one cp.async.bulk.prefetch 2.81, by prefetch.global.L2 2.85. The
 *        compiler moves loads over barriers (ld.global.nc) and waits for the scale before it asks for weights: read
 *        the SASS.
 *      - 5 warps a block and twice the blocks 2.71.
 *      - the factor divided behind the barrier, in a branch of its own: 0.12 less than where the compiler puts it.
 *      - signed weights by one multiply-add and one and (weights4), so that no sum of activations is taken off:
 *        2.93 for 2.85; 6.07 for 5.75 at 13824 x 2560. Here each decoding instruction counts.
 *      - SEG 2 or 4, which pad K = 2560 less, in fewer warps: 3.52 and 3.00.
 *      - columns of B for up to 8 / SEG rows of activations, a warp over all of K, for M > 1: 6.2, 6.3, 8.0 for v3's
 *        5.8, 6.0, 6.3 at M = 2, 4, 8, 13824 x 2560.
 *
 * acc = sum(code * a) - sum(a); the warps that stage the activations leave their shares of sum(a) in shared memory, and
 * each lane takes some off. Bound: the sums of field 3 hold K / SEG / 4 codes of a row in one element: |sum| <= 2 * 64
 * * 128 * K / SEG / 4 < 2^31 for K < 2^19 * SEG. Shared memory ends earlier: K bytes of activations.
 *
 * A block owns `each` rows, a warp 2 * PAIRS * 8 / SEG of them at a time, STEPS steps of 4 * SEG chunks of 64 weights
 * in flight together.
 *
 * Macros: INPUT (0, or as in rows.cuh), HELD, SEG (8, 4, 2), STEPS, PAIRS (of fragments of A), THREADS (most threads of
 * a block), LOOP: 0 one tile a warp and K in one pass, the pairs multiplied one after another; 1 as many tiles and passes
 * over K as it takes, the next loaded before this one is multiplied (PAIRS 1).
 *
 * Times of a launch on an NVIDIA H200 (132 SMs), in us: M = 1, float32 outputs, plain launches in a CUDA graph, weights
 * cold in L2. Measured with a benchmark outside of this project; "v2, v3" is the faster of the two, v2 before its
 * factor moved to the front, and "read" a kernel that only reads those bytes.
 *
 *   N x K          read   v2, v3   v4     SEG STEPS PAIRS LOOP   blocks x warps
 *   2560 x 2560    1.80   2.99     2.69   8   2     1     0      128 x 10
 *   3840 x 2560    2.08   3.23     3.00   8   2     1     0      240 x 8
 *   13824 x 2560   3.48   5.32     5.19   2   5     2     0      124 x 7
 *   2560 x 6912    2.65   4.42     3.94   8   4     1     0      128 x 10
 *   3200 x 3200    2.11   3.48     3.06   8   2     1     0      229 x 7
 *   20480 x 3200   5.78   7.70     7.81   8   2     1     1      132 x 20   (v3 is launched)
 *   3200 x 10240   3.52   5.95     5.27   8   5     1     0      124 x 13
 *   4096 x 4096    2.48   3.74     3.45   8   2     1     0      256 x 8
 *   14336 x 4096   5.15   6.33     6.63   8   1     1     1      512 x 8    (v2 is launched)
 *   5120 x 27648   9.28   13.40    12.53  8   2     1     1      132 x 20
 *   55296 x 5120   16.95  20.59    20.31  4   5     1     1      264 x 8    (v2 is launched)
 *
 * Of what v4 takes at 2560 x 2560, reading the weights is 1.82, activations through shared memory 0.27, decoding and
 * multiplying 0.42, adding up, factor and store 0.18 (0.05 with int32 outputs). Rings of slots in shared memory
 * filled by cp.async.bulk or cp.async were slower for every shape: 3.00 and 3.27 at 2560 x 2560.
 *
 *   v5, for INPUT: the activations are quantized here, so that a linear layer is one launch. Predicted: the time of v4
 *      and 0.3 for a second barrier and the maximum. Measured: no more than v4 where all of x is asked for before the
 *      weights and kept in registers; 0.6 to 1.5 more where it is read after them, since what an SM asks for comes back
 *      in that order, and 0.3 more with loads of x in branches of their own (for K that is no multiple of 4) in place of
 *      predicated ones, at K of 4096 and N of 14336. On the same H200, us: the two kernels (activation_quantize and the
 *      best product), the best product alone, v5 from bfloat16 x to bfloat16 outputs; HELD as cuda.py has it.
 *
 *   N x K          both   product  v5                       N x K          both   product  v5
 *   2560 x 2560    4.55   2.85     2.80                     4096 x 4096    5.44   3.58     3.33
 *   3840 x 2560    4.85   3.15     3.06                     14336 x 4096   8.19   6.33     6.76
 *   13824 x 2560   7.43   5.74     5.79                     27648 x 5120   14.24  12.35    12.28 (SEG 4, STEPS 5)
 *   2560 x 6912    6.13   4.18     4.48                     55296 x 5120   23.40  21.47    20.53 (SEG 4, STEPS 5)
 *   3200 x 3200    5.00   3.18     3.31                     6912 x 6912    9.55   7.55     7.17
 *   20480 x 3200   10.04  8.25     8.02                     8192 x 8192    10.33  8.25     7.91
 *   3200 x 10240   7.83   5.69     5.32                     28672 x 8192   19.67  17.74    18.13
 *                                                           5120 x 27648   17.96  13.14    16.44
 * LOOP with STEPS 4 was slower at 20480 x 3200 (11.1) and 14336 x 4096 (8.9), as fast at 8192 x 8192.
 * Since then launches overlap, and weights that are constant are read before the launch before has ended: overlap.cuh has
 * what that took off these times. With that, no faster: one block a multiprocessor whose weights all come by bulk copies
 * into 67 KB of shared memory, so that two launches have room (4.0 to 4.2 us for 3.9 at 13824 x 2560); rings of such
 * slots for each warp (26.0 us for 20.7 at 55296 x 5120, each row copied by itself; on an H100, 16 rows in one copy, 26.2
 * for 26.6, where reading takes 22.6), and what comes after them asked for into L2 (28.6 there). Later, on an H100 with
 * v6 below: what LOOP takes next asked for before the wait too (26.5 for 24.7 at 55296 x 5120, 9.1 for 7.7 at 13824 x 5120,
 * 8.4 for 6.6 at 8192 x 8192); blocks that take 32 rows once, without LOOP (25.1 at 55296 x 5120).
 *
 *   v6, small blocks. In a chain of such launches it counts how soon the next one's weights are asked for, and a block of
 *      7 to 20 warps has to wait until that many registers are free. So blocks are as small as leaves a warp its steps of
 *      K in flight: 4 to 10 warps, more of them than one a multiprocessor, and instances for K of 4096, 5120 and 8192 in
 *      one pass (SEG 4 STEPS 4 with 1 and 2 PAIRS; with LOOP SEG 4 STEPS 4 and 5, SEG 8 STEPS 4). Weights that are not
 *      constant are not in flight before the wait: 13824 x 2560 then takes 7.48 us in blocks of 4 warps and 5.43 in those
 *      of 7, so they have blocks of their own (cuda.py). On an H100 (132 SMs, 3.35 TB/s), constant weights, cold, graphs
 *      of launches one behind the other, about a hundred instances and sizes of blocks by turns, outside of this project;
 *      before: the fastest of all kernels as it was chosen for an H200. `tritmark autotune --op ternary_matmul --shape
 *      1,N,K` races the instances that there are.
 *
 *   N x K          before  v6               N x K          before  v6               fused, bfloat16  before  v6
 *   3840 x 2560     2.15    2.10            4096 x 4096     2.43    2.35            3840 x 2560      2.54    2.47
 *   13824 x 2560    4.67    3.82            6144 x 4096     4.07    3.11            13824 x 2560     5.05    4.41
 *   27648 x 2560    9.07    8.85            14336 x 4096    6.63    6.23            4800 x 3200      3.70    2.81
 *   55296 x 2560   14.98   14.64            28672 x 4096   12.06   11.55            20480 x 3200     8.22    8.05
 *   3200 x 3200     2.18    2.13            13824 x 5120    9.05    7.75            4096 x 4096      2.82    2.75
 *   4800 x 3200     3.35    2.47            55296 x 5120   27.48   25.84            14336 x 4096     7.21    6.93
 *   8640 x 3200     5.10    3.50            6912 x 6912     6.68    5.86
 *   20480 x 3200    9.62    7.54            8192 x 8192     7.68    6.75
 *   3200 x 10240    4.77    3.75            28672 x 8192   22.42   21.37
 * Since then blocks of a loop take as many rows as all of their warps do in up to 3 passes: 13824 x 5120 7.23 for 7.71, 20480
 * x 5120 9.95 for 10.66, 11008 x 8192 8.81 for 9.19, 6912 x 6912 5.75 for 5.90, 28672 x 4096 11.09 for 11.31; not in 7
 * (55296 x 5120 25.3 for 24.7). By turns on an H100.
 * 2560 x 2560, 6912 x 2560, 2560 x 6912 and 5120 x 27648 stay as they were, 27648 x 5120 takes 14.24 for 14.21. */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "mma.cuh"
#if INPUT
#include "../activation_quantize/rows.cuh"
#endif

#if INPUT
/* Four elements that are asked for here and now, before the weights. */
__device__ __forceinline__ elements4 early4(const element *from)
{
#ifdef TRITMARK_SIMULATOR
    return *(const elements4 *)from;
#else
    elements4 to;
#if INPUT == 32
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w)
                 : "l"(from));
#else
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
#endif
    return to;
#endif
}
#endif

#define WIDE (4 * SEG)          /* chunks of a row in one step, and lanes of a row */
#define PER (8 / SEG)           /* rows in 8 rows of a fragment */
#define TILE (2 * PAIRS * PER)  /* rows of a warp at a time */

/* With INPUT 0 the activations a are int8 and were quantized with act_scale. Otherwise x (K,) is quantized here, by
 * every block for itself, to the codes and the scale that activation_quantize.cu gives, bit for bit. What a thread holds
 * of x (HELD times four elements) is asked for before weights that are not constant, because what an SM asks for comes
 * back in that order; the rest is read twice, from the caches. A NaN or infinity makes all of the output NaN, and the
 * first block lowers `bad` to the index of the first.
 *
 * grid: N / each blocks, rounded up; block: whole warps; with LOOP 0, TILE * warps >= each and 64 * WIDE * STEPS >=
 * K. Dynamic shared memory: 64 bytes for each chunk of K up to a multiple of WIDE * STEPS, then 4 bytes a warp. a:
 * aligned to 16 bytes. constant: no launch writes the weights, see overlap.cuh. N + each and N + TILE * warps < 2^31;
 * indexes the bytes of weights in 64 bits. */
#if INPUT
extern "C" __global__ void __launch_bounds__(THREADS) gemm_linear_rows(
    const element *x, const uint4 *w, void *out, float weight_scale, int N, int K, int kind, int each, int constant,
    unsigned long long *bad)
#else
extern "C" __global__ void __launch_bounds__(THREADS) gemm_gemv_rows(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, float weight_scale, int N, int K, int kind,
    int each, int constant)
#endif
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int chunks = (K + CHUNK - 1) / CHUNK;
    const int mine = 4 * (g % SEG) + t, of_row = g / SEG; /* chunk of a step and row of 8 / SEG: what this lane loads */
    const int row_end = min(N, (int)(blockIdx.x + 1) * each);
    int row = blockIdx.x * each + warp * TILE;

    /* Each 16 bytes of weights of a step that are there. */
    const auto each_of = [&](int first, int from, const auto &take) {
        const uint4 *at = w + (long long)(first + of_row) * chunks + from + mine;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int p = 0; p < PAIRS; p++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int down = (2 * p + h) * PER;
                    take(
                        s, p, h, at + (down * chunks + s * WIDE),
                        first + down + of_row < row_end && from + s * WIDE + mine < chunks);
                }
    };
    const auto load = [&](uint4(&to)[STEPS][PAIRS][2], int first, int from) {
        each_of(first, from, [&](int s, int p, int h, const uint4 *at, bool there) {
            to[s][p][h] = there ? weights16(at) : make_uint4(0, 0, 0, 0);
        });
    };
#if INPUT
    __shared__ unsigned largest[32];
    elements4 own[HELD];
    const auto hold = [&] {
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const int at = 4 * (h * blockDim.x + threadIdx.x);
            own[h] = {};
            if (at + 4 <= K)
                own[h] = early4(x + at);
        }
    };
#endif
    if (!constant) {
        each_of(row, 0, [](int, int, int, const uint4 *at, bool there) {
            if (there)
                prefetch(at);
        });
        wait_for_the_one_before();
#if INPUT
        hold();
#endif
    }
    uint4 now[STEPS][PAIRS][2];
    load(now, row, 0);
    if (constant) {
        wait_for_the_one_before();
#if INPUT
        hold();
#endif
    }
    let_the_next_begin();

    /* Activations as 16 bytes [step][4][WIDE], so that a warp reads them without conflicts. */
    const int padded = (chunks + WIDE * STEPS - 1) / (WIDE * STEPS) * (WIDE * STEPS);
    int4 *staged = (int4 *)gemv_shared;
    int *partial = (int *)(staged + 4 * padded); /* [warps] */
    int sum = 0;
#if INPUT
    if (K % 4) /* what is left of the last four */
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const int at = 4 * (h * blockDim.x + threadIdx.x);
            if (at < K && at + 4 > K)
                own[h] = load4(x, at, K, false);
        }
    unsigned mine_largest = 0;
#pragma unroll
    for (int h = 0; h < HELD; h++)
        mine_largest = max(mine_largest, highest(values(own[h])));
    for (unsigned i = HELD * blockDim.x + threadIdx.x; 4 * i < (unsigned)K; i += blockDim.x)
        mine_largest = max(mine_largest, highest(values(load4(x, 4 * i, K, true))));
    mine_largest = block_max(mine_largest, largest);
    const float act_factor = scale_of(mine_largest);
    /* Word i has the codes from 4 * i on. */
    const auto stage = [&](unsigned i, elements4 four) {
        const int codes = (int)codes4(values(four), act_factor);
        const unsigned chunk = i / 16, j = i / 4 % 4;
        ((int *)(staged + (chunk / WIDE * 4 + j) * WIDE + chunk % WIDE))[i % 4] = codes;
        sum = __dp4a(codes, (int)ONES, sum);
    };
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (h * blockDim.x + threadIdx.x < 16u * padded)
            stage(h * blockDim.x + threadIdx.x, own[h]);
    for (unsigned i = HELD * blockDim.x + threadIdx.x; i < 16u * padded; i += blockDim.x)
        stage(i, load4(x, 4 * i, K, true));
    if (mine_largest >= 0x7f800000u && blockIdx.x == 0)
        find_nonfinite(x, K, 0, bad);
    const float act_scale[1] = {told(mine_largest, act_factor)};
#else
    constexpr int together = LOOP ? 4 : 1; /* loads of activations under way together */
#pragma unroll together
    for (unsigned i = threadIdx.x; i < 4u * padded; i += blockDim.x) {
        const unsigned chunk = i / 4, j = i % 4;
        int4 four = make_int4(0, 0, 0, 0);
        if (chunk < (unsigned)chunks)
            four = activations16_aligned(a, 16 * i, K);
        staged[(chunk / WIDE * 4 + j) * WIDE + chunk % WIDE] = four;
        sum = __dp4a(
            four.x, (int)ONES, __dp4a(four.y, (int)ONES, __dp4a(four.z, (int)ONES, __dp4a(four.w, (int)ONES, sum))));
    }
#endif
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (lane == 0)
        partial[warp] = sum;
    const double factor = kind ? output_factor(weight_scale, act_scale[0]) : 0.0;
    __syncthreads();
    int less = mine < warps ? partial[mine] : 0; /* of this lane's share of each row */
#if SEG < 8 /* there may be more warps than lanes of a row */
#pragma unroll 1
    for (int i = mine + WIDE; i < warps; i += WIDE)
        less += partial[i];
#endif

    /* What element (g, g) of both fragments of C adds up to over the lanes of a row. */
    const auto row_sum = [&](const int (&acc)[4][4], int h) {
        int of[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            of[j] = acc[0][2 * h + j] + (acc[1][2 * h + j] >> 2) + (acc[2][2 * h + j] >> 4) + (acc[3][2 * h + j] >> 6);
        int x = (t == g / 2 ? (g & 1 ? of[1] : of[0]) : 0) - less;
#if SEG == 8
        x = __reduce_add_sync(0xffffffffu, x);
#else
#pragma unroll
        for (int distance = 1; distance < WIDE; distance *= 2)
            x += __shfl_xor_sync(0xffffffffu, x, distance);
#endif
        return x;
    };
    const auto step = [&](int (&acc)[4][4], const uint4(&both)[2], int from) {
        const uint4 low = both[0], high = both[1];
        int4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = staged[4 * from + j * WIDE + mine];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int x[4] = {b[2 * h].x, b[2 * h].y, b[2 * h].z, b[2 * h].w},
                      y[4] = {b[2 * h + 1].x, b[2 * h + 1].y, b[2 * h + 1].z, b[2 * h + 1].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned mask = 0x03030303u << 2 * i;
                mma(acc[i], (h ? low.z : low.x) & mask, (h ? high.z : high.x) & mask, (h ? low.w : low.y) & mask,
                    (h ? high.w : high.y) & mask, x[i], y[i]);
            }
        }
    };
#if LOOP
    uint4 next[STEPS][PAIRS][2];
    int acc[4][4] = {};
    for (int from = 0; row < row_end;) {
        const bool last = from + STEPS * WIDE >= chunks; /* pass over K */
        const int from_next = last ? 0 : from + STEPS * WIDE, row_next = last ? row + warps * TILE : row;
        load(next, row_next, from_next);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            step(acc, now[s][0], from + s * WIDE);
        if (last) {
            int value = 0;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int x = row_sum(acc, h);
                value = mine == h ? x : value;
            }
            const int n = row + mine * PER + of_row;
            if (mine < 2 && n < row_end)
                store(out, n, value, factor, kind);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    acc[i][e] = 0;
        }
        row = row_next, from = from_next;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            now[s][0][0] = next[s][0][0], now[s][0][1] = next[s][0][1];
    }
#else
    int value = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int acc[4][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            step(acc, now[s][p], s * WIDE);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int x = row_sum(acc, h);
            value = mine == 2 * p + h ? x : value;
        }
    }
    const int n = row + mine * PER + of_row;
    if (mine < 2 * PAIRS && n < row_end)
        store(out, n, value, factor, kind);
#endif
}
#undef WIDE
#undef PER
#undef TILE
