/* matmul, C = A B, on Hopper's asynchronous tensor cores (wgmma, 9.0a): float16 or bfloat16 inputs, float32 sums
 * (specification, 3.4).
 *
 * Layout: both factors come from shared memory as they lie in memory: A along k, B along n, which wgmma transposes by
 * itself. Rows of 128 bytes are swizzled, B in panels of 64 columns.
 *
 * Algorithm: a block makes 128 x COLUMNS outputs at a time. One warpgroup copies 64 k of both factors (a stage) into a
 * ring in shared memory; two multiply 64 rows each. A block takes 16 rows of tiles down before it goes on to the right,
 * so concurrent tiles read few rows and few columns.
 *
 * Limit: 2 M N K operations at 4096 a cycle and multiprocessor. A stage of 128 x 256 outputs takes 48 KB from L2 for
 * 1,024 cycles of the tensor cores; it takes about 1,500, on 40 multiprocessors as on 132, so L2 is not the limit.
 *
 * Macros: INPUT, 16 (__half) or 8 (__nv_bfloat16); COLUMNS, of a tile, 64, 128 or 256; STAGES; THREADS, of a block; and
 * NAME, the function's name.
 *
 * Rates: `tritmark run --suite gpu --op 'matmul_*' --variant wgmma --device cuda`. Versions:
 * docs/kernels/cuda_matmul.md. */
#if INPUT == 16
#include <cuda_fp16.h>
typedef __half input;
#define TYPE "f16"
__device__ __forceinline__ float wide(input x) { return __half2float(x); }
#else
#include <cuda_bf16.h>
typedef __nv_bfloat16 input;
#define TYPE "bf16"
__device__ __forceinline__ float wide(input x) { return __bfloat162float(x); }
#endif
#include "../cuda/tiles/wgmma.cuh"

#define WARPGROUP 128 /* threads */
#define ROW_BYTES DEPTH /* of a row of a tile in shared memory */
#define ROWS 128 /* of a tile */
#define STAGE_K 64 /* k of a stage: 128 bytes of a row of A */
#define GROUP 16 /* tiles that lie one below the other before the next column of them */
#define CHUNKS (COLUMNS / 8) /* 16 bytes of a row of B */
#define PANEL (STAGE_K * ROW_BYTES) /* bytes of 64 columns of B */
#define STAGE_BYTES (ROWS * ROW_BYTES + COLUMNS / 64 * PANEL)

static_assert(THREADS == 3 * WARPGROUP, "one warpgroup copies, two multiply");

#ifdef TRITMARK_SIMULATOR
/* acc (64 x COLUMNS) = or += A (64 x 16) B (16 x COLUMNS), k from `k` on of a stage. A lane has columns 8 j + 2 t and
 * 8 j + 2 t + 1 of row g of its warp's 16 in acc[4 j] and acc[4 j + 1], of row g + 8 behind them. */
__device__ __forceinline__ void multiply(
    float (&acc)[COLUMNS / 2], const unsigned char *left, const unsigned char *right, int k, int add)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    for (int i = 0; i < COLUMNS / 2; i++) {
        const int m = row + i / 2 % 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = add ? acc[i] : 0.0f;
        for (int kk = k; kk < k + 16; kk++)
            sum = fmaf(
                wide(*(const input *)(left + swizzled(m, kk / 8) + kk % 8 * 2)),
                wide(*(const input *)(right + n / 64 * PANEL + swizzled(kk, n % 64 / 8) + n % 8 * 2)), sum);
        acc[i] = sum;
    }
}
#else
/* The same function as the simulator's branch. Complete after multiply_wait. */
__device__ __forceinline__ void multiply(
    float (&c)[COLUMNS / 2], const unsigned char *left, const unsigned char *right, int k, int add)
{
    /* Descriptors: address / 16; for B the bytes / 16 between panels; 1024 bytes between groups of 8 rows; swizzled in
     * 128 bytes. */
    const unsigned long long a =
        (unsigned long long)((shared_address(left) + 2 * k) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
    const unsigned long long b = (unsigned long long)((shared_address(right) + k * ROW_BYTES) >> 4 & 0x3fff) |
                                 (unsigned long long)(PANEL / 16) << 16 | 64ull << 32 | 1ull << 62;
#define PRODUCT(n, left, right, adds) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
                 "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, %" #left ", %" #right ", p, 1, 1, 0, 1;\n}\n" \
                 : WGMMA_SUMS_##n("f") \
                 : "l"(a), "l"(b), "r"(add))
#if COLUMNS == 64
    PRODUCT(64, 32, 33, 34);
#elif COLUMNS == 128
    PRODUCT(128, 64, 65, 66);
#else
    PRODUCT(256, 128, 129, 130);
#endif
#undef PRODUCT
}
#endif

/* a (M, K), b (K, N), c (M, N), all row-major and aligned to 16 bytes, N and K multiples of 8; grid: any number of
 * blocks; block: THREADS threads. Dynamic shared memory: STAGES * (STAGE_BYTES + 16). M, N and K at most 2^31 - 1 -
 * 256. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    NAME(const input *__restrict__ a, const input *__restrict__ b, float *__restrict__ c, int M, int N, int K)
{
    extern __shared__ __align__(1024) unsigned char matmul_shared[];
    unsigned char *const stages = matmul_shared;
    unsigned long long *const full = (unsigned long long *)(stages + STAGES * STAGE_BYTES), *const empty =
                                                                                                full + STAGES;
    const int warpgroup = threadIdx.x / WARPGROUP, p = threadIdx.x % WARPGROUP;
    const int steps = (K + STAGE_K - 1) / STAGE_K;
    const int down = (M + ROWS - 1) / ROWS, across = (N + COLUMNS - 1) / COLUMNS;
    const long long tiles = (long long)down * across, group_tiles = (long long)GROUP * across;
    const auto place = [&](long long tile, int &m0, int &n0) {
        const int above = (int)(tile / group_tiles) * GROUP, within = (int)(tile % group_tiles);
        const int high = min(GROUP, down - above);
        m0 = (above + within % high) * ROWS, n0 = within / high * COLUMNS;
    };
#ifndef TRITMARK_SIMULATOR
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(full + i, WARPGROUP), barrier_init(empty + i, 2 * 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
    int stage = 0, m0, n0;

    if (warpgroup == 0) {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        unsigned parity = 1;
#endif
        const int part = p % 8, row = p / 8, chunk = p % CHUNKS, k_of = p / CHUNKS;
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            place(tile, m0, n0);
            const input *from_a = a + (m0 + row) * (long long)K + 8 * part;
            const input *from_b = b + k_of * (long long)N + n0 + 8 * chunk;
            const int rows = M - m0 - row; /* that there are from this thread's first on */
            const bool inside = n0 + 8 * chunk < N;
            for (int step = 0; step < steps; step++) {
                unsigned char *const left = stages + stage * STAGE_BYTES, *const right = left + ROWS * ROW_BYTES +
                                                                                         chunk / 8 * PANEL;
                const int k0 = step * STAGE_K;
                const int bytes = k0 + 8 * part < K ? 16 : 0, ks = inside ? K - k0 - k_of : 0;
#ifndef TRITMARK_SIMULATOR
                barrier_wait(empty + stage, parity);
#endif
#pragma unroll
                for (int i = 0; i < ROWS; i += WARPGROUP / 8)
                    copy16(left + swizzled(row + i, part), from_a + i * (long long)K, i < rows ? bytes : 0);
#pragma unroll
                for (int i = 0; i < STAGE_K; i += WARPGROUP / CHUNKS)
                    copy16(right + swizzled(k_of + i, chunk % 8), from_b + i * (long long)N, i < ks ? 16 : 0);
                from_a += STAGE_K, from_b += STAGE_K * (long long)N;
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
                exchange_stage();
#else
                barrier_arrive_copied(full + stage);
                if (++stage == STAGES)
                    stage = 0, parity ^= 1;
#endif
            }
        }
#ifndef TRITMARK_SIMULATOR
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    } else {
#ifndef TRITMARK_SIMULATOR
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        unsigned parity = 0;
#endif
        const int lane = p % 32, row = (warpgroup - 1) * 64 + p / 32 * 16 + lane / 4, column = lane % 4 * 2;
        float acc[COLUMNS / 2];
        for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            place(tile, m0, n0);
            int before = -1;
            for (int step = 0; step < steps; step++) {
                const unsigned char *const left = stages + stage * STAGE_BYTES + (warpgroup - 1) * 64 * ROW_BYTES,
                                           *const right = stages + stage * STAGE_BYTES + ROWS * ROW_BYTES;
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                barrier_wait(full + stage, parity);
                multiply_sees();
#endif
                multiply_begin();
#pragma unroll
                for (int k = 0; k < STAGE_K; k += 16)
                    multiply(acc, left, right, k, step || k);
                multiply_end();
                multiply_wait<1>();
#ifdef TRITMARK_SIMULATOR
                exchange_stage();
#else
                if (before >= 0 && lane == 0)
                    barrier_arrive(empty + before);
                before = stage;
                if (++stage == STAGES)
                    stage = 0, parity ^= 1;
#endif
            }
            multiply_wait<0>();
#ifndef TRITMARK_SIMULATOR
            if (lane == 0)
                barrier_arrive(empty + before);
#endif
            float *const to = c + (m0 + row) * (long long)N + n0 + column;
            const int rows = M - m0 - row, columns = N - n0 - column;
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i += 2) {
                const int m = i / 2 % 2 * 8, n = i / 4 * 8;
                if (m < rows && n < columns)
                    *(float2 *)(to + m * (long long)N + n) = make_float2(acc[i], acc[i + 1]);
            }
        }
    }
}
