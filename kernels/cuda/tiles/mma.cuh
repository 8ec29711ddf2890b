/* Products of the tensor cores (8.0 and newer), of a warp: of bytes here, and MMA for other types.
 *
 * c += A B, A of 16 rows and B of 8 columns, 32 bytes of k. With (g, t) = (lane / 4, lane % 4): a0, a2 hold bytes 4t..
 * and 16 + 4t.. of row g of A, a1, a3 the same of row g + 8, b0, b1 the same of column g of B; c[0], c[1] are row g,
 * columns 2t and 2t + 1; c[2], c[3] those of row g + 8. */
#ifndef TRITMARK_CUDA_TILES_MMA
#define TRITMARK_CUDA_TILES_MMA

#ifdef TRITMARK_SIMULATOR
/* sum and the product of four bytes of each. */
template <class A> __device__ inline int dot4(unsigned a, unsigned b, int sum)
{
    for (int i = 0; i < 4; i++)
        sum += (int)(A)(a >> 8 * i & 0xffu) * (int)(signed char)(b >> 8 * i & 0xffu);
    return sum;
}

template <class Number, class Dot>
__device__ inline void mma_of(
    Number (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, const Dot &dot)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const unsigned low[2] = {__shfl_sync(0xffffffffu, a0, 4 * g + i), __shfl_sync(0xffffffffu, a2, 4 * g + i)};
        const unsigned high[2] = {__shfl_sync(0xffffffffu, a1, 4 * g + i), __shfl_sync(0xffffffffu, a3, 4 * g + i)};
        for (int j = 0; j < 2; j++) {
            const unsigned right[2] = {
                __shfl_sync(0xffffffffu, b0, 4 * (2 * t + j) + i), __shfl_sync(0xffffffffu, b1, 4 * (2 * t + j) + i)};
            for (int h = 0; h < 2; h++) {
                c[j] = dot(low[h], right[h], c[j]);
                c[2 + j] = dot(high[h], right[h], c[2 + j]);
            }
        }
    }
}
#define MMA(dot, letter, types) mma_of(c, a0, a1, a2, a3, b0, b1, dot)
#else
/* The instruction of those types, as its name ends. `letter`: of the sums; `dot`: the simulator's. */
#define MMA(dot, letter, types) \
    asm("mma.sync.aligned." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+" letter(c[0]), "+" letter(c[1]), "+" letter(c[2]), "+" letter(c[3]) \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#endif

/* Unsigned bytes in A, signed ones in B. */
__device__ __forceinline__ void mma(
    int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    MMA(dot4<unsigned char>, "r", "m16n8k32.row.col.s32.u8.s8.s32");
}

/* Signed bytes in both. */
__device__ __forceinline__ void mma_signed(
    int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    MMA(dot4<signed char>, "r", "m16n8k32.row.col.s32.s8.s8.s32");
}
#endif
