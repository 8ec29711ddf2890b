/* ternary_matmul from tq2_0 (GROUPED 1) and iq2_bn (0), by dp4a: any M, each weight read once for ROWS rows of
 * activations. Layouts and the order of sums are in scaled.cuh.
 *
 * Layout: a job is four rows of weights and a group, 256 columns, for four lanes. Lane u has unit u of each row, so
 * activations are loaded once for four rows. A unit is not aligned (blocks have 66 bytes, rows begin with 4): three
 * loads of 8 bytes contain it, and 5 selects and 4 permutes extract it.
 *
 * Algorithm: acc = sum((w + 1) * a) - sum(a), both over the same k in the same lane; 64 columns each. The lanes share
 * the rows out by three shuffles, and lane u leaves the part of row u, times its scale, in shared memory. Then one
 * thread an output adds the parts in order.
 *
 * Limit: about 70 instructions for 64 weights; memory only for small weights.
 *
 * Macros: ROWS (of activations at a time), THREADS (most threads of a block).
 *
 * Rates: `tritmark run --suite gpu --op ternary_matmul --variant 'cuda/ternary_matmul/*q2_*' --device cuda`.
 * Versions and what lost: docs/kernels/cuda_scaled.md. */
#include "scaled.cuh"

#define FOUR 4 /* rows of weights that share loads of activations */

/* grid: any number of blocks; block: whole warps, at least ROWS * 4 * sets threads. A block takes 4 * sets rows of
 * weights, `chunk` groups of them at a time. Dynamic shared memory: ROWS * 4 * sets * (chunk | 1) totals. K a multiple
 * of 256 (tq2_0) or 64 (iq2_bn). lda: bytes between rows of activations. Indexes the bytes of weights, M * N outputs
 * and the blocks' shares of them in 64 bits. */
extern "C" __global__ void __launch_bounds__(THREADS) gemm_scaled_dp4a(
    const signed char *a, const unsigned char *w, const float *act_scale, void *out, long long lda, float weight_scale,
    int M, int N, int K, int kind, int sets, int chunk)
{
    extern __shared__ __align__(16) unsigned char scaled_shared[];
    Total *parts = (Total *)scaled_shared; /* [ROWS * high][pitch] */
    const int u = threadIdx.x % 4, quad = threadIdx.x % 32 / 4, warp = threadIdx.x / 32, quads = blockDim.x / 4;
    const int high = FOUR * sets, pitch = chunk | 1, groups = (K + COLUMNS - 1) / COLUMNS;
    const long long row_size = row_bytes(K), down = (N + high - 1) / high, shares = down * ((M + ROWS - 1) / ROWS);
    const unsigned char *end = w + row_size * N;
    const bool fast = (((unsigned long long)a | (unsigned long long)lda) & 15) == 0;
    const int m_done = threadIdx.x / high, row_done = threadIdx.x % high; /* the output that this thread finishes */

    for (long long share = blockIdx.x; share < shares; share += gridDim.x) {
        const int n0 = (int)(share % down) * high, m0 = (int)(share / down) * ROWS;
        const bool mine = m_done < ROWS && m0 + m_done < M && n0 + row_done < N;
        double factor = 0;
        float row_scale = 0;
        Total total = 0;
        for (int first = 0; first < groups; first += chunk) {
            const int count = min(chunk, groups - first), jobs = sets * count;
            for (int from = 8 * warp; from == 8 * warp || from < jobs; from += quads) {
                const int job = min(from + quad, jobs - 1), set = job / count, g = first + job % count;
                const bool there = has_unit(g, u, K);
                const unsigned char *at[FOUR];
                uint2 eights[FOUR][3];
#pragma unroll
                for (int r = 0; r < FOUR; r++) {
                    /* Rows past the last repeat the last; their outputs are not stored. */
                    at[r] = w + (row_size * min(n0 + FOUR * set + r, N - 1) + unit_at(there ? g : 0, there ? u : 0));
                    unit_early(eights[r], at[r], end);
                }
#if GROUPED
                const float scale = scale_of(w + row_size * min(n0 + FOUR * set + u, N - 1), g);
#endif
                /* The factor is computed while the first weights are loaded. */
                if (kind && mine && first == 0 && from == 8 * warp) {
#if !GROUPED
                    row_scale = scale_of(w + row_size * (n0 + row_done), 0);
#endif
                    factor = output_factor_early(weight_scale, scale_early(act_scale + m0 + m_done));
                }
                unsigned words[FOUR][4];
#pragma unroll
                for (int r = 0; r < FOUR; r++)
                    unit_words(words[r], eights[r], at[r]);
                int acc[ROWS][FOUR] = {};
                int act_sum[ROWS] = {};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int four[ROWS][4];
#pragma unroll
                    for (int m = 0; m < ROWS; m++) {
                        const int4 all = there && m0 + m < M
                                             ? activations16(a + (m0 + m) * lda, column_of(g, u, i), K, fast)
                                             : make_int4(0, 0, 0, 0);
                        four[m][0] = all.x, four[m][1] = all.y, four[m][2] = all.z, four[m][3] = all.w;
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            act_sum[m] = __dp4a(four[m][j], (int)ONES, act_sum[m]);
                    }
#pragma unroll
                    for (int r = 0; r < FOUR; r++)
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                            const int field = (int)(words[r][j] >> 2 * i & 0x03030303u);
#pragma unroll
                            for (int m = 0; m < ROWS; m++)
                                acc[m][r] = __dp4a(field, four[m][j], acc[m][r]);
                        }
                }
                /* Four lanes have a quarter of each row's part: they share the rows out, two and two, then one each, so
                 * that lane u has that of row u. */
                const bool odd = u & 1, behind = u & 2;
#pragma unroll
                for (int m = 0; m < ROWS; m++) {
#pragma unroll
                    for (int r = 0; r < FOUR; r++)
                        acc[m][r] -= act_sum[m];
                    const int front =
                        (odd ? acc[m][1] : acc[m][0]) + __shfl_xor_sync(0xffffffffu, odd ? acc[m][0] : acc[m][1], 1);
                    const int back =
                        (odd ? acc[m][3] : acc[m][2]) + __shfl_xor_sync(0xffffffffu, odd ? acc[m][2] : acc[m][3], 1);
                    const int part = (behind ? back : front) + __shfl_xor_sync(0xffffffffu, behind ? front : back, 2);
                    if (from + quad < jobs)
#if GROUPED
                        parts[(m * high + FOUR * set + u) * pitch + g - first] =
                            __dmul_rn((double)scale, exact_double(part));
#else
                        parts[(m * high + FOUR * set + u) * pitch + g - first] = part;
#endif
                }
            }
            __syncthreads();
            if (mine)
                for (int g = 0; g < count; g++)
                    total += parts[threadIdx.x * pitch + g];
            __syncthreads(); /* before the next ones overwrite them */
        }
        if (mine)
            store_total(out, (long long)(m0 + m_done) * N + n0 + row_done, total, row_scale, factor, kind);
    }
}
