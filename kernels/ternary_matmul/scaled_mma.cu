/* ternary_matmul from tq2_0 (GROUPED 1) and iq2_bn (0) for several rows of activations, by the tensor cores. Layouts
 * and the order of sums are in scaled.cuh.
 *
 * Layout: in one mma.m16n8k32, A (16 x 32) is weights, B (32 x 8) activations. The order of k is free as long as both
 * agree: lane (row, t) takes unit t of the rows `row` and `row` + 8, and of the activations of row `row` the 16 columns
 * that each field of that unit meets.
 *
 * Algorithm: 8 mma are a group, 256 columns; they make the sums over t. Weights are decoded by weights4 (common.cuh) as
 * 64 w, so a part is 64 times too large, 2^21 at most. SPLIT 1: the warps of a block have a group each, leave their
 * parts in shared memory, and a thread an output adds them in order. SPLIT 0: each warp has a tile of outputs and all
 * of K, and its lanes keep the totals, in order.
 *
 * Limit: tensor cores and, with tq2_0, the additions in double. Few warps where there are few blocks.
 *
 * Macros: EIGHTS (of rows of activations), SETS (of 16 rows of weights), SPLIT, THREADS (most threads of a block).
 *
 * Rates: `tritmark run --suite FILE --op ternary_matmul --device cuda`, FILE with the rows to measure.
 * Versions and what lost: docs/kernels/cuda_scaled.md. */
#include "scaled.cuh"
#include "../cuda/tiles/mma.cuh"

#define HIGH (16 * SETS)  /* rows of weights of a tile */
#define ACTIVE (8 * EIGHTS) /* rows of activations of a tile */
#define PITCH (HIGH + 4)

/* grid: any number of blocks; block: whole warps. With SPLIT, bytes of dynamic shared memory:
 * warps * (ACTIVE * PITCH + HIGH) * 4. K a multiple of 256 (tq2_0) or 64 (iq2_bn). lda: bytes between rows of
 * activations. Indexes the bytes of weights, M * N outputs and the tiles in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_scaled_mma(
    const signed char *a, const unsigned char *w, const float *act_scale, void *out, long long lda, float weight_scale,
    int M, int N, int K, int kind)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int row = lane / 4, t = lane % 4, groups = (K + COLUMNS - 1) / COLUMNS;
    const long long row_size = row_bytes(K), down = (N + HIGH - 1) / HIGH, tiles = down * ((M + ACTIVE - 1) / ACTIVE);
    const unsigned char *end = w + row_size * N;
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
#if SPLIT
    extern __shared__ __align__(16) unsigned char scaled_shared[];
    __shared__ Total totals[ACTIVE * HIGH];
    __shared__ double factors[ACTIVE];
    __shared__ float row_scales[HIGH];
    int *parts = (int *)scaled_shared;                        /* [warps][ACTIVE][PITCH] */
    float *scales = (float *)(parts + warps * ACTIVE * PITCH); /* [warps][HIGH] */
    const int start = warp, stride = warps;
    const long long first_tile = blockIdx.x, tile_stride = gridDim.x;
#else
    const int start = 0, stride = 1;
    const long long first_tile = (long long)blockIdx.x * warps + warp, tile_stride = (long long)gridDim.x * warps;
#endif

    for (long long tile = first_tile; tile < tiles; tile += tile_stride) {
        const int n0 = (int)(tile % down) * HIGH, m0 = (int)(tile / down) * ACTIVE;
        const unsigned char *rows[SETS][2];
        uint2 eights[SETS][2][3];
#pragma unroll
        for (int s = 0; s < SETS; s++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                /* Rows past the last repeat the last; their outputs are not stored. */
                rows[s][h] = w + row_size * min(n0 + 16 * s + 8 * h + row, N - 1);
        const auto load = [&](int g) {
            const bool there = g < groups && has_unit(g, t, K);
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    unit_early(eights[s][h], rows[s][h] + unit_at(there ? g : 0, there ? t : 0), end);
        };
        load(start);
#if SPLIT
        for (int i = threadIdx.x; i < ACTIVE * HIGH; i += blockDim.x)
            totals[i] = 0;
        /* The factors are computed while the first weights are loaded. */
        for (int i = threadIdx.x; kind && i < ACTIVE && m0 + i < M; i += blockDim.x)
            factors[i] = output_factor_early(weight_scale, scale_early(act_scale + m0 + i));
        for (int i = threadIdx.x; !GROUPED && i < HIGH; i += blockDim.x)
            row_scales[i] = scale_of(w + row_size * min(n0 + i, N - 1), 0);
#else
        Total total[EIGHTS][SETS][4] = {};
#endif
        for (int base = 0; base < groups; base += stride) { /* every warp as often */
            const int g = base + start;
            const bool there = g < groups && has_unit(g, t, K);
            unsigned words[SETS][2][4];
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    unit_words(words[s][h], eights[s][h], rows[s][h] + unit_at(there ? g : 0, there ? t : 0));
#if GROUPED
            float scale[SETS][2];
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    scale[s][h] = scale_of(rows[s][h], min(g, groups - 1));
#endif
            if (base + stride < groups)
                load(g + stride);
            int acc[EIGHTS][SETS][4] = {}; /* 64 times the part */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int four[EIGHTS][4];
#pragma unroll
                for (int q = 0; q < EIGHTS; q++) {
                    const int m = m0 + 8 * q + row;
                    const int4 all = there && m < M ? activations16(a + m * lda, column_of(g, t, i), K, fast)
                                                    : make_int4(0, 0, 0, 0);
                    four[q][0] = all.x, four[q][1] = all.y, four[q][2] = all.z, four[q][3] = all.w;
                }
#pragma unroll
                for (int p = 0; p < 4; p += 2)
#pragma unroll
                    for (int s = 0; s < SETS; s++) {
                        const unsigned up = 1u << (6 - 2 * i);
                        const unsigned a0 = weights4(words[s][0][p], up), a1 = weights4(words[s][1][p], up);
                        const unsigned a2 = weights4(words[s][0][p + 1], up), a3 = weights4(words[s][1][p + 1], up);
#pragma unroll
                        for (int q = 0; q < EIGHTS; q++)
                            mma_signed(acc[q][s], a0, a1, a2, a3, (unsigned)four[q][p], (unsigned)four[q][p + 1]);
                    }
            }
#if SPLIT
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int c = 0; c < 4; c++)
#pragma unroll
                    for (int q = 0; q < EIGHTS; q++)
                        parts[(warp * ACTIVE + 8 * q + 2 * t + c % 2) * PITCH + 16 * s + 8 * (c / 2) + row] =
                            acc[q][s][c] >> 6;
#if GROUPED
            if (t == 0)
#pragma unroll
                for (int s = 0; s < SETS; s++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        scales[warp * HIGH + 16 * s + 8 * h + row] = scale[s][h];
#endif
            __syncthreads();
            const int shared = min(warps, groups - base);
            for (int i = threadIdx.x; i < ACTIVE * HIGH; i += blockDim.x) {
                Total total = totals[i];
                for (int each = 0; each < shared; each++) {
                    const int part = parts[(each * ACTIVE + i / HIGH) * PITCH + i % HIGH];
#if GROUPED
                    total = __fma_rn((double)scales[each * HIGH + i % HIGH], exact_double(part), total);
#else
                    total += part;
#endif
                }
                totals[i] = total;
            }
            __syncthreads(); /* before the next ones overwrite them */
#else
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int c = 0; c < 4; c++)
#pragma unroll
                    for (int q = 0; q < EIGHTS; q++)
#if GROUPED
                        total[q][s][c] =
                            __fma_rn((double)scale[s][c / 2] / 64, exact_double(acc[q][s][c]), total[q][s][c]);
#else
                        total[q][s][c] += acc[q][s][c] >> 6;
#endif
#endif
        }
#if SPLIT
        for (int i = threadIdx.x; i < ACTIVE * HIGH; i += blockDim.x) {
            const int m = m0 + i / HIGH, n = n0 + i % HIGH;
            if (m < M && n < N)
                store_total(
                    out, (long long)m * N + n, totals[i], row_scales[i % HIGH], kind ? factors[i / HIGH] : 0.0, kind);
        }
        __syncthreads(); /* before the next tile overwrites them */
#else
#pragma unroll
        for (int q = 0; q < EIGHTS; q++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int m = m0 + 8 * q + 2 * t + j;
                if (m < M) {
                    const double factor = kind ? output_factor(weight_scale, act_scale[m]) : 0.0;
#pragma unroll
                    for (int s = 0; s < SETS; s++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            const int n = n0 + 16 * s + 8 * h + row;
                            if (n < N)
                                store_total(
                                    out, (long long)m * N + n, total[q][s][2 * h + j],
                                    GROUPED ? 0.f : scale_of(rows[s][h], 0), factor, kind);
                        }
                }
            }
#endif
    }
}
