/* Hopper's asynchronous product (wgmma) of 16-bit floating point, weights from registers. Copies into shared memory,
 * barriers, and the layout of a tile of activations (rows of 128 bytes, here 64 k) are those of ternary_matmul's
 * wgmma.cuh.
 *
 * Macro: INPUT (see a16.cuh). */
#ifndef TRITMARK_TERNARY_MATMUL_A16_WGMMA
#define TRITMARK_TERNARY_MATMUL_A16_WGMMA
#include "../ternary_matmul/wgmma.cuh"
#include "a16.cuh"

#ifdef TRITMARK_SIMULATOR
/* acc (64 x 2 HALF) = or += A (64 x 16) B (16 x 2 HALF), as a16.cuh's fragments: a warp has 16 rows of A and acc. B:
 * columns in `tile`, k of them from byte `k` on. */
template <int HALF>
__device__ __forceinline__ void multiply(
    float (&acc)[HALF], const unsigned (&a)[4], const unsigned char *tile, int k, int add)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    unsigned rows[2][8]; /* 16 k of rows g and g + 8 */
    for (int i = 0; i < 4; i++) {
        rows[0][i] = __shfl_sync(0xffffffffu, a[0], 4 * g + i), rows[1][i] = __shfl_sync(0xffffffffu, a[1], 4 * g + i);
        rows[0][4 + i] = __shfl_sync(0xffffffffu, a[2], 4 * g + i);
        rows[1][4 + i] = __shfl_sync(0xffffffffu, a[3], 4 * g + i);
    }
    for (int j = 0; j < HALF / 4; j++)
        for (int e = 0; e < 2; e++) {
            const unsigned column = 8 * j + 2 * t + e;
            unsigned of[8];
            for (int half = 0; half < 2; half++)
                *(uint4 *)(of + 4 * half) = *(const uint4 *)(tile + swizzled(column, k / 16 + half));
            for (int h = 0; h < 2; h++) {
                float &sum = acc[4 * j + 2 * h + e];
                sum = add ? sum : 0.0f;
                for (int i = 0; i < 8; i++)
                    sum = dot2(rows[h][i], of[i], sum);
            }
        }
}
#else
#define C8(i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
/* The same function as the simulator's branch, for n columns. `names`: the operands of the accumulators; the last
 * arguments: the accumulators; the others: numbers of operands. Complete after multiply_wait. */
#define MULTIPLY(n, names, a0, a1, a2, a3, descriptor, adds, ...) \
    __device__ __forceinline__ void multiply( \
        float (&c)[n / 2], const unsigned (&a)[4], const unsigned char *tile, int k, int add) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
                     "k16.f32." TYPE "." TYPE " {" names "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor \
                     ", p, 1, 1, 0;\n}\n" \
                     : __VA_ARGS__ \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(described(tile, k)), "r"(add)); \
    }
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_96 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_160 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_192 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
MULTIPLY(16, NAMES_16, 8, 9, 10, 11, 12, 13, C8(0))
MULTIPLY(32, NAMES_32, 16, 17, 18, 19, 20, 21, C8(0), C8(8))
MULTIPLY(64, NAMES_64, 32, 33, 34, 35, 36, 37, C8(0), C8(8), C8(16), C8(24))
MULTIPLY(96, NAMES_96, 48, 49, 50, 51, 52, 53, C8(0), C8(8), C8(16), C8(24), C8(32), C8(40))
MULTIPLY(128, NAMES_128, 64, 65, 66, 67, 68, 69, C8(0), C8(8), C8(16), C8(24), C8(32), C8(40), C8(48), C8(56))
MULTIPLY(
    160, NAMES_160, 80, 81, 82, 83, 84, 85, C8(0), C8(8), C8(16), C8(24), C8(32), C8(40), C8(48), C8(56), C8(64),
    C8(72))
MULTIPLY(
    192, NAMES_192, 96, 97, 98, 99, 100, 101, C8(0), C8(8), C8(16), C8(24), C8(32), C8(40), C8(48), C8(56), C8(64),
    C8(72), C8(80), C8(88))
#undef C8
#undef MULTIPLY
#endif
#endif
