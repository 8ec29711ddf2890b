/* The int8 product of the tensor cores (8.0 and newer), shared by the kernels of ternary_matmul. */
#ifndef TRITMARK_TERNARY_MATMUL_MMA
#define TRITMARK_TERNARY_MATMUL_MMA

#ifdef TRITMARK_SIMULATOR
template <class A> __device__ inline int dot4(unsigned a, unsigned b)
{
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int)(A)(a >> 8 * i & 0xffu) * (int)(signed char)(b >> 8 * i & 0xffu);
    return sum;
}

template <class A>
__device__ inline void mma_of(int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const unsigned low[2] = {__shfl_sync(0xffffffffu, a0, 4 * g + i), __shfl_sync(0xffffffffu, a2, 4 * g + i)};
        const unsigned high[2] = {__shfl_sync(0xffffffffu, a1, 4 * g + i), __shfl_sync(0xffffffffu, a3, 4 * g + i)};
        for (int j = 0; j < 2; j++) {
            const unsigned right[2] = {
                __shfl_sync(0xffffffffu, b0, 4 * (2 * t + j) + i), __shfl_sync(0xffffffffu, b1, 4 * (2 * t + j) + i)};
            c[j] += dot4<A>(low[0], right[0]) + dot4<A>(low[1], right[1]);
            c[2 + j] += dot4<A>(high[0], right[0]) + dot4<A>(high[1], right[1]);
        }
    }
}
#endif

/* c += A B, A 16 x 32 of unsigned bytes, B 32 x 8 of signed ones. With (g, t) = (lane / 4, lane % 4): a0, a2 hold k
 * = 4t.. and 16 + 4t.. of row g of A, a1, a3 the same of row g + 8, b0, b1 the same of column g of B; c[0], c[1] are
 * row g, columns 2t and 2t + 1; c[2], c[3] those of row g + 8. */
__device__ __forceinline__ void mma(
    int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
#ifdef TRITMARK_SIMULATOR
    mma_of<unsigned char>(c, a0, a1, a2, a3, b0, b1);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

/* The same with signed bytes in A. */
__device__ __forceinline__ void mma_signed(
    int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
#ifdef TRITMARK_SIMULATOR
    mma_of<signed char>(c, a0, a1, a2, a3, b0, b1);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

#endif
