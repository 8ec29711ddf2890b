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
#include "../ternary_matmul/wgmma.cuh" /* copies, barriers, multiply_wait; its own product is of bytes */

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
#if COLUMNS == 64
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, 0, 1;\n}\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
                   "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                   "+f"(c[30]), "+f"(c[31])
                 : "l"(a), "l"(b), "r"(add));
#endif
#if COLUMNS == 128
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, 0, 1;\n}\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
                   "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                   "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]),
                   "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]),
                   "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
                   "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]),
                   "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
                 : "l"(a), "l"(b), "r"(add));
#endif
#if COLUMNS == 256
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, %128, %129, p, 1, 1, 0, 1;\n}\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
                   "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                   "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]),
                   "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]),
                   "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
                   "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]),
                   "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), "+f"(c[64]),
                   "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]),
                   "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]),
                   "+f"(c[79]), "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]),
                   "+f"(c[86]), "+f"(c[87]), "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), "+f"(c[92]),
                   "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), "+f"(c[96]), "+f"(c[97]), "+f"(c[98]), "+f"(c[99]),
                   "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), "+f"(c[104]), "+f"(c[105]), "+f"(c[106]),
                   "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111]), "+f"(c[112]), "+f"(c[113]),
                   "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119]), "+f"(c[120]),
                   "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]), "+f"(c[127])
                 : "l"(a), "l"(b), "r"(add));
#endif
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
