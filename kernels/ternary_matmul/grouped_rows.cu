/* ternary_matmul for M = 1 with a scale for each group of weights (grouped.cuh), on the tensor cores; each weight is
 * read once and decoded in registers.
 *
 * Layout: as in gemv_rows.cu, the 8 rows of a fragment of A are SEG segments of 256 k of 8 / SEG rows of weights, and
 * lane (g, t) has 16 bytes, chunk t of 4. One mma adds the chunks of all t, so where a group has less than 256 weights,
 * column j of B has the activations of a quarter or half of a segment, and 0 for the other chunks: PARTS columns are a
 * segment. Of C, lane (g, t) uses the columns of its row's segment.
 *
 * Algorithm: `split` warps share K, STEPS steps of 4 * SEG chunks each, all requested with their scales before the one
 * barrier, which is for the activations. Sums of a row are added over the lanes, then over the warps, always in the
 * same order.
 *
 * Limit: memory for large weights, else latency after the weights arrive.
 *
 * Macros: GROUP, SEG (2; 4 with GROUP 128, 8 with GROUP 256), STEPS, THREADS (most threads of a block).
 *
 * Rates: `python suites/performance/grouped_products.py --rows 1`. Versions and what lost:
 * docs/kernels/cuda_grouped.md. */
#include "../cuda/overlap.cuh"
#include "grouped.cuh"
#include "../cuda/tiles/mma.cuh"

#define WIDE (4 * SEG)   /* chunks of a row in one step, and lanes of a row */
#define PER (8 / SEG)    /* rows in 8 rows of a fragment */
#define TILE (2 * PER)   /* rows of a warp */
#define PARTS (GROUP >= 256 ? 1 : GROUP == 128 ? 2 : 4) /* of 256 k, each of one group, or of two groups of 32 */
#define HALVES (GROUP == 32 ? 2 : 1) /* groups of a part */
static_assert(SEG * PARTS <= 8, "B has 8 columns");

/* grid: N / (tiles * TILE) blocks, rounded up; block: tiles * split warps, 64 * WIDE * STEPS * split >= K. Dynamic
 * shared memory: 64 * WIDE * STEPS * split bytes, then 4 * warps * TILE. a: aligned to 16 bytes. K a multiple of GROUP.
 * constant: no launch writes the weights, see overlap.cuh. Indexes the bytes of weights in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_grouped_rows(
    const signed char *a, const uint4 *w, const float *act_scale, void *out, float weight_scale, int N, int K, int kind,
    int split, int constant)
{
    extern __shared__ __align__(16) unsigned char gemv_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = blockDim.x / 32 / split;
    const int g = lane / 4, t = lane % 4, segment = g % SEG, of_row = g / SEG;
    const int chunks = (K + CHUNK - 1) / CHUNK, groups = K / GROUP;
    const int part = warp % split, row = (blockIdx.x * tiles + warp / split) * TILE;
    const int first = part * STEPS * WIDE + 4 * segment; /* chunk of this segment in the first step */
    const unsigned short *const all_scales = scales_in(w, N, K);
    const long long apart = scales_apart(N);
    /* Whether this lane has columns of its row's segment, and the first part of them. */
    const bool mine = PARTS == 1 ? t == segment / 2 : t * 2 / PARTS == segment;
    const int from_part = PARTS == 4 ? 2 * (t % 2) : 0;

    /* The valid loads of weights, 16 bytes, and of scales. */
    const auto each_of = [&](const auto &take, const auto &take_scale) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int n = row + h * PER + of_row, chunk = first + s * WIDE;
                take(s, h, w + (n * (long long)chunks + chunk + t), n < N && chunk + t < chunks);
#pragma unroll
                for (int e = 0; e < (PARTS == 1 ? 1 : 2); e++)
#pragma unroll
                    for (int half = 0; half < HALVES; half++) {
                        const int group = (chunk * CHUNK + (from_part + e) * (256 / PARTS)) / GROUP + half;
                        take_scale(s, h, e, half, all_scales + (group * apart + n), mine && n < N && group < groups);
                    }
            }
    };
    uint4 now[STEPS][2];
    unsigned short scales[STEPS][2][2][HALVES] = {};
    if (!constant) {
        const auto fetch = [](const void *at, bool there) {
            if (there)
                prefetch(at);
        };
        each_of(
            [&](int, int, const uint4 *at, bool there) { fetch(at, there); },
            [&](int, int, int, int, const unsigned short *at, bool there) { fetch(at, there); });
        wait_for_the_one_before();
    }
    each_of(
        [&](int s, int h, const uint4 *at, bool there) { now[s][h] = there ? weights16(at) : make_uint4(0, 0, 0, 0); },
        [&](int s, int h, int e, int half, const unsigned short *at, bool there) {
            if (there)
                scales[s][h][e][half] = scale16(at);
        });
    if (constant)
        wait_for_the_one_before();
    let_the_next_begin();

    /* Activations as 16 bytes [step][4][WIDE], so that a warp reads them without conflicts. */
    int4 *const staged = (int4 *)gemv_shared;
    float *const sums = (float *)(staged + 4 * WIDE * STEPS * split); /* [warps][TILE] */
    for (int i = threadIdx.x; i < 4 * WIDE * STEPS * split; i += blockDim.x) {
        const int chunk = i / 4, j = i % 4;
        staged[(chunk / WIDE * 4 + j) * WIDE + chunk % WIDE] =
            16 * i + 16 <= K ? *(const int4 *)(a + 16 * i) : make_int4(0, 0, 0, 0);
    }
    const double factor = output_factor(weight_scale, act_scale[0]);
    __syncthreads();

    /* The chunk of the activations of column g, and whether this lane's chunk t is in its part. */
    const int chunk_b = g / PARTS % SEG * 4 + t;
    const bool in_part = t * PARTS / 4 == g % PARTS;
    float sum[2] = {};
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = in_part ? staged[((part * STEPS + s) * 4 + j) * WIDE + chunk_b] : make_int4(0, 0, 0, 0);
        const uint4 low = now[s][0], high = now[s][1];
        int acc[4] = {MAGIC, MAGIC, MAGIC, MAGIC};
        const auto add = [&](int half) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (PARTS == 1)
                    sum[h] = __fmaf_rn(
                        scale_of(scales[s][h][0][half]), part_of(segment % 2 ? acc[2 * h + 1] : acc[2 * h]), sum[h]);
                else
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        sum[h] = __fmaf_rn(scale_of(scales[s][h][e][half]), part_of(acc[2 * h + e]), sum[h]);
        };
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int x[4] = {b[2 * half].x, b[2 * half].y, b[2 * half].z, b[2 * half].w},
                      y[4] = {b[2 * half + 1].x, b[2 * half + 1].y, b[2 * half + 1].z, b[2 * half + 1].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned up = 1u << (6 - 2 * i);
                mma_signed(
                    acc, weights4(half ? low.z : low.x, up), weights4(half ? high.z : high.x, up),
                    weights4(half ? low.w : low.y, up), weights4(half ? high.w : high.y, up), x[i], y[i]);
            }
            if (HALVES == 2 || half == 1)
                add(HALVES == 2 ? half : 0);
            if (HALVES == 2)
                acc[0] = acc[1] = acc[2] = acc[3] = MAGIC;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int distance = 1; distance < WIDE; distance *= 2)
            sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], distance);
    if (split == 1) {
        const int n = row + lane % WIDE * PER + of_row;
        if (lane % WIDE < 2 && n < N)
            store_sum(out, n, lane % WIDE ? sum[1] : sum[0], factor, kind);
        return;
    }
    if (lane % WIDE < 2)
        sums[warp * TILE + lane % WIDE * PER + of_row] = lane % WIDE ? sum[1] : sum[0];
    __syncthreads();
    for (int i = threadIdx.x; i < tiles * TILE; i += blockDim.x) {
        const int tile = i / TILE, n = blockIdx.x * tiles * TILE + i;
        float all = 0;
        for (int p = 0; p < split; p++)
            all += sums[(tile * split + p) * TILE + i % TILE];
        if (n < N)
            store_sum(out, n, all, factor, kind);
    }
}
#undef WIDE
#undef PER
#undef TILE
#undef PARTS
#undef HALVES
