/* matmul, C = A B in float32 without tensor cores (specification, 3.2).
 *
 * Layout: a block makes 128 x 128 outputs, a thread 8 x 8 of them, in four patches of 4 x 4 that lie 16 rows and 32
 * columns apart. So the eight lanes that share rows read 128 contiguous bytes of B.
 *
 * Algorithm: for 64 fused multiply-adds a thread reads 64 bytes from shared memory (tiled.cu: 32 for 16). The next
 * step's 16-byte loads are issued before this one is multiplied, wait in registers and go to the other of two buffers:
 * one barrier a step. Sums run along k in order, one rounding a product: the bits are those of tiled.cu.
 *
 * Limit: fmaf. With fewer tiles than multiprocessors tiled.cu is faster.
 *
 * Macro: THREADS, of a block.
 *
 * Rates: `tritmark run --suite gpu --op matmul_fp32 --device cuda`. Versions: docs/kernels/cuda_matmul.md. */
#define EDGE 128 /* rows and columns of a block's outputs */
#define DEPTH 16 /* k of a step */
#define PITCH (EDGE + 4) /* floats between two k in shared memory */
#define LOADS (EDGE * DEPTH / 4 / THREADS) /* 16-byte loads of a thread, of each factor, in a step */

static_assert(THREADS == 256, "4 x 2 warps of 32 x 64 outputs");

/* Elements column to column + 3 of a row, zeros beyond its end. `fast`: row and its length are multiples of 16
 * bytes. */
__device__ __forceinline__ float4 four(const float *row, int column, int columns, bool fast)
{
    if (fast)
        return column < columns ? *(const float4 *)(row + column) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return make_float4(
        column < columns ? row[column] : 0.0f, column + 1 < columns ? row[column + 1] : 0.0f,
        column + 2 < columns ? row[column + 2] : 0.0f, column + 3 < columns ? row[column + 3] : 0.0f);
}

/* The part of a step that this thread loads: pieces of rows of A along k, and of rows of B along n. */
__device__ __forceinline__ void fetch(
    float4 (&l)[LOADS], float4 (&r)[LOADS], const float *a, const float *b, int m0, int n0, int k0, int M, int N, int K,
    bool fast_a, bool fast_b)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = threadIdx.x + i * THREADS;
        const int m = m0 + at / (DEPTH / 4), k = k0 + at / (EDGE / 4);
        const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        l[i] = m < M ? four(a + (long long)m * K, k0 + at % (DEPTH / 4) * 4, K, fast_a) : none;
        r[i] = k < K ? four(b + (long long)k * N, n0 + at % (EDGE / 4) * 4, N, fast_b) : none;
    }
}

__device__ __forceinline__ void keep(float *left, float *right, const float4 (&l)[LOADS], const float4 (&r)[LOADS])
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = threadIdx.x + i * THREADS;
        float *to = left + at % (DEPTH / 4) * 4 * PITCH + at / (DEPTH / 4);
        to[0] = l[i].x, to[PITCH] = l[i].y, to[2 * PITCH] = l[i].z, to[3 * PITCH] = l[i].w;
        *(float4 *)&right[at / (EDGE / 4) * PITCH + at % (EDGE / 4) * 4] = r[i];
    }
}

/* a (M, K), b (K, N), c (M, N), all row-major; grid: any number of blocks; block: THREADS threads. Indexes in 64
 * bits; M, N and K at most 2^31 - 1 - 128. */
extern "C" __global__ void gemm_ffma(
    const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int M, int N, int K)
{
    __shared__ __align__(16) float buffers[2][2][DEPTH * PITCH]; /* twice: left [k][m], right [k][n] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m_of = warp / 2 * 32 + lane / 8 * 4, n_of = warp % 2 * 64 + lane % 8 * 4;
    const bool fast_a = K % 4 == 0 && ((unsigned long long)a & 15) == 0,
               fast_b = N % 4 == 0 && ((unsigned long long)b & 15) == 0,
               whole = N % 4 == 0 && ((unsigned long long)c & 15) == 0; /* four neighbours are one store */
    const long long down = (M + EDGE - 1) / EDGE, tiles = down * ((N + EDGE - 1) / EDGE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        /* neighbours share B, usually the larger factor */
        const int m0 = (int)(tile % down) * EDGE, n0 = (int)(tile / down) * EDGE;
        float acc[8][8] = {};
        float4 l[LOADS], r[LOADS];
        fetch(l, r, a, b, m0, n0, 0, M, N, K, fast_a, fast_b);
        keep(buffers[0][0], buffers[0][1], l, r);
        __syncthreads();
        int at = 0;
        for (int k0 = 0; k0 < K; k0 += DEPTH) {
            const bool more = k0 + DEPTH < K;
            if (more)
                fetch(l, r, a, b, m0, n0, k0 + DEPTH, M, N, K, fast_a, fast_b);
            const float *left = buffers[at][0] + m_of, *right = buffers[at][1] + n_of;
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                const float4 l0 = *(const float4 *)(left + k * PITCH), l1 = *(const float4 *)(left + k * PITCH + 16),
                             r0 = *(const float4 *)(right + k * PITCH), r1 = *(const float4 *)(right + k * PITCH + 32);
                const float ls[8] = {l0.x, l0.y, l0.z, l0.w, l1.x, l1.y, l1.z, l1.w},
                            rs[8] = {r0.x, r0.y, r0.z, r0.w, r1.x, r1.y, r1.z, r1.w};
#pragma unroll
                for (int p = 0; p < 8; p++)
#pragma unroll
                    for (int q = 0; q < 8; q++)
                        acc[p][q] = fmaf(ls[p], rs[q], acc[p][q]);
            }
            at ^= 1;
            if (more)
                keep(buffers[at][0], buffers[at][1], l, r);
            __syncthreads(); /* after the last step too: the next tile's inputs go to the first buffer */
        }
#pragma unroll
        for (int p = 0; p < 8; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int m = m0 + m_of + p / 4 * 16 + p % 4, n = n0 + n_of + 32 * half;
                float *out = c + (long long)m * N + n;
                const float *sums = acc[p] + 4 * half;
                if (whole && m < M && n < N) {
                    *(float4 *)out = make_float4(sums[0], sums[1], sums[2], sums[3]);
                } else if (m < M) {
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        if (n + q < N)
                            out[q] = sums[q];
                }
            }
    }
}
