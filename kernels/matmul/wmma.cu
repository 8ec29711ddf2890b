/* matmul, C = A B, on tensor cores through nvcuda::wmma: float16 or bfloat16 inputs, float32 sums (specification, 3.4).
 *
 * Layout: two sizes of tile: 128 x 128 outputs by 8 warps of 32 x 64, with steps of 32 k; 64 x 64 by 4 warps of 32 x 32
 * with steps of 64 k, if large tiles would leave multiprocessors idle. What lies beyond M, N or K is 0 in shared
 * memory, so every shape is whole fragments.
 *
 * Algorithm: 16-byte loads if rows allow it. The next step's are issued before this one is multiplied, wait in
 * registers and go to the other of two buffers: one barrier a step. Fragments that lie within C are stored straight to
 * it, others through shared memory.
 *
 * Limit: loads; a step of 32 k of the large tile brings 16 KiB for 2^20 operations.
 *
 * Macros: INPUT, 16 (__half) or 8 (__nv_bfloat16); EDGE, rows and columns of a block's outputs; DEPTH, k of a step;
 * WARP_N, columns of a warp's outputs (its rows are 32); THREADS, of a block; and NAME, the function's name.
 *
 * Rates: `tritmark run --suite gpu --op 'matmul_*' --variant wmma --device cuda`. Versions:
 * docs/kernels/cuda_matmul.md. */
#include <mma.h>
#if INPUT == 16
#include <cuda_fp16.h>
typedef __half input;
#else
#include <cuda_bf16.h>
typedef __nv_bfloat16 input;
#endif

#define WARP_M 32
#define ACROSS (EDGE / WARP_N) /* warps side by side */
#define LEFT_PITCH (DEPTH + 8) /* elements between rows in shared memory: eight rows' 16 bytes lie in different banks */
#define RIGHT_PITCH (EDGE + 8)
#define LEFT (EDGE * LEFT_PITCH) /* elements of a buffer */
#define RIGHT (DEPTH * RIGHT_PITCH)
#define LOADS (EDGE * DEPTH / 8 / THREADS) /* 16-byte loads of a thread, of each factor, in a step */
#define PATCH 20 /* floats between rows of a fragment of outputs in shared memory */

static_assert(THREADS == 32 * ACROSS * (EDGE / WARP_M), "a warp for each part of the outputs");

/* Elements column to column + 7 of a row, zeros beyond its end. `fast`: row and its length are multiples of 16
 * bytes. */
__device__ __forceinline__ uint4 eight(const input *row, int column, int columns, bool fast)
{
    if (fast)
        return column < columns ? *(const uint4 *)(row + column) : make_uint4(0, 0, 0, 0);
    const unsigned short *bits = (const unsigned short *)row;
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = column + 2 * i;
        words[i] = at < columns ? bits[at] : 0u;
        words[i] |= (at + 1 < columns ? (unsigned)bits[at + 1] : 0u) << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The part of a step that this thread loads: chunks of rows of A along k, and of rows of B along n. */
__device__ __forceinline__ void fetch(
    uint4 (&l)[LOADS], uint4 (&r)[LOADS], const input *a, const input *b, int m0, int n0, int k0, int M, int N, int K,
    bool fast_a, bool fast_b)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = threadIdx.x + i * THREADS;
        const int m = m0 + at / (DEPTH / 8), k = k0 + at / (EDGE / 8);
        l[i] = m < M ? eight(a + (long long)m * K, k0 + at % (DEPTH / 8) * 8, K, fast_a) : make_uint4(0, 0, 0, 0);
        r[i] = k < K ? eight(b + (long long)k * N, n0 + at % (EDGE / 8) * 8, N, fast_b) : make_uint4(0, 0, 0, 0);
    }
}

__device__ __forceinline__ void keep(input *left, input *right, const uint4 (&l)[LOADS], const uint4 (&r)[LOADS])
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int at = threadIdx.x + i * THREADS;
        *(uint4 *)&left[at / (DEPTH / 8) * LEFT_PITCH + at % (DEPTH / 8) * 8] = l[i];
        *(uint4 *)&right[at / (EDGE / 8) * RIGHT_PITCH + at % (EDGE / 8) * 8] = r[i];
    }
}

/* a (M, K), b (K, N), c (M, N), all row-major; grid: any number of blocks; block: THREADS threads. Indexes in 64
 * bits; M, N and K at most 2^31 - 1 - 128. */
extern "C" __global__ void __launch_bounds__(THREADS)
    NAME(const input *__restrict__ a, const input *__restrict__ b, float *__restrict__ c, int M, int N, int K)
{
    using namespace nvcuda;
    __shared__ __align__(32) input buffers[2 * (LEFT + RIGHT)]; /* twice: left [m][k], right [k][n] */
    const int warp = threadIdx.x / 32, wm = warp / ACROSS * WARP_M, wn = warp % ACROSS * WARP_N;
    const bool fast_a = K % 8 == 0 && ((unsigned long long)a & 15) == 0,
               fast_b = N % 8 == 0 && ((unsigned long long)b & 15) == 0;
    const bool straight = N % 4 == 0 && ((unsigned long long)c & 31) == 0;
    const long long down = (M + EDGE - 1) / EDGE, tiles = down * ((N + EDGE - 1) / EDGE);
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        /* neighbours share B, usually the larger factor */
        const int m0 = (int)(tile % down) * EDGE, n0 = (int)(tile / down) * EDGE;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[WARP_M / 16][WARP_N / 16];
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_N / 16; j++)
                wmma::fill_fragment(acc[i][j], 0.0f);
        uint4 l[LOADS], r[LOADS];
        fetch(l, r, a, b, m0, n0, 0, M, N, K, fast_a, fast_b);
        keep(buffers, buffers + LEFT, l, r);
        __syncthreads();
        int at = 0;
        for (int k0 = 0; k0 < K; k0 += DEPTH) {
            const bool more = k0 + DEPTH < K;
            if (more)
                fetch(l, r, a, b, m0, n0, k0 + DEPTH, M, N, K, fast_a, fast_b);
            const input *left = buffers + at * (LEFT + RIGHT), *right = left + LEFT;
#pragma unroll
            for (int k = 0; k < DEPTH; k += 16) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, input, wmma::row_major> fa[WARP_M / 16];
#pragma unroll
                for (int i = 0; i < WARP_M / 16; i++)
                    wmma::load_matrix_sync(fa[i], &left[(wm + 16 * i) * LEFT_PITCH + k], LEFT_PITCH);
#pragma unroll
                for (int j = 0; j < WARP_N / 16; j++) {
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, input, wmma::row_major> fb;
                    wmma::load_matrix_sync(fb, &right[k * RIGHT_PITCH + wn + 16 * j], RIGHT_PITCH);
#pragma unroll
                    for (int i = 0; i < WARP_M / 16; i++)
                        wmma::mma_sync(acc[i][j], fa[i], fb, acc[i][j]);
                }
            }
            at ^= 1;
            if (more)
                keep(buffers + at * (LEFT + RIGHT), buffers + at * (LEFT + RIGHT) + LEFT, l, r);
            /* after the last step too: outputs go where inputs were, and the next tile's inputs where outputs were */
            __syncthreads();
        }
        float *patch = (float *)buffers + warp * 16 * PATCH; /* the warp's own */
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_N / 16; j++) {
                const int m = m0 + wm + 16 * i, n = n0 + wn + 16 * j;
                if (straight && m + 16 <= M && n + 16 <= N) {
                    wmma::store_matrix_sync(c + (long long)m * N + n, acc[i][j], N, wmma::mem_row_major);
                } else if (m < M && n < N) {
                    wmma::store_matrix_sync(patch, acc[i][j], PATCH, wmma::mem_row_major);
                    __syncwarp();
                    for (int e = threadIdx.x % 32; e < 256; e += 32)
                        if (m + e / 16 < M && n + e % 16 < N)
                            c[(long long)(m + e / 16) * N + n + e % 16] = patch[e / 16 * PATCH + e % 16];
                    __syncwarp();
                }
            }
        __syncthreads(); /* before the next tile's inputs */
    }
}
