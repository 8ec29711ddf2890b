/* ternary_matmul for M = 1 on the tensor cores: weights (N, K) in row16, each read once, one warp for all of a row.
 *
 * Layout: weights are decoded as in gemv_mma.cu. The 8 columns of B hold SEG segments of K: column j has the
 * activations of segment j % SEG, and the 8 rows of a fragment of A are SEG segments of 8 / SEG rows of weights. Only
 * element (g, g) of each fragment of C is used. The 16 bytes of the lanes are contiguous: with SEG 8, 512 bytes of a
 * row in one load.
 *
 * Algorithm: a block owns `each` rows, a warp 2 * PAIRS * 8 / SEG of them at a time, STEPS steps of 4 * SEG chunks of
 * 64 weights in flight together. Weights are requested before the one barrier, which is for the activations; a warp's
 * sums are reduced in registers. acc = sum(code * a) - sum(a): the warps that stage the activations leave their shares
 * of sum(a) in shared memory, and each lane subtracts some. With INPUT the activations are quantized here, so a linear
 * layer is one launch.
 * Bound: the sums of field 3 hold K / SEG / 4 codes of a row in one element: |sum| <= 2 * 64 * 128 * K / SEG / 4 < 2^31
 * for K < 2^19 * SEG. Shared memory ends earlier: K bytes of activations.
 *
 * Limit: memory for large weights, else latency after the weights arrive. In a chain of launches it counts how early
 * the next launch can request its weights, so blocks are small (overlap.cuh).
 *
 * Macros: INPUT (0, or as in rows.cuh), HELD, SEG (8, 4, 2), STEPS, PAIRS (of fragments of A), THREADS (most threads of
 * a block), LOOP: 0 one tile a warp and K in one pass, the pairs multiplied one after another; 1 as many tiles and
 * passes over K as it takes, the next loaded before this one is multiplied (PAIRS 1).
 *
 * Rates: `tritmark run --suite gpu --op 'ternary_*' --variant gemv --device cuda`;
 * `tritmark tune instances --op ternary_matmul --shape 1,N,K` measures all instances. Versions and what lost:
 * docs/kernels/cuda_gemv.md. */
#include "../cuda/overlap.cuh"
#include "common.cuh"
#include "../cuda/tiles/mma.cuh"
#if INPUT
#include "../activation_quantize/rows.cuh"
#endif

#if INPUT
/* Four elements, loaded at this point, before the weights. */
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

/* INPUT 0: activations a are int8, quantized with act_scale. Else each block quantizes x (K,) to the codes and the
 * scale of activation_quantize.cu, bit for bit; the first HELD * 4 elements of a thread are kept, the others read
 * twice. A NaN or infinity makes all of the output NaN, and the first block lowers `bad` to its index.
 * grid: N / each blocks, rounded up; block: whole warps; with LOOP 0, TILE * warps >= each and 64 * WIDE * STEPS >= K.
 * Dynamic shared memory: 64 bytes for each chunk of K up to a multiple of WIDE * STEPS, then 4 bytes a warp. a: aligned
 * to 16 bytes. constant: no launch writes the weights, see overlap.cuh. N + each and N + TILE * warps < 2^31; indexes
 * the bytes of weights in 64 bits. */
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

    /* The valid 16-byte loads of weights of a step. */
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
    constexpr int together = LOOP ? 4 : 1; /* loads of activations in flight together */
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

    /* Element (g, g) of both fragments of C, summed over the lanes of a row. */
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
