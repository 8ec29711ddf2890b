/* What gemm_mma.cu multiplies: chunks of 64 weights of 8 rows a lane group, times chunks of activations. Include
 * common.cuh and mma.cuh first. */
#ifndef TRITMARK_TERNARY_MATMUL_MMA_CHUNKS
#define TRITMARK_TERNARY_MATMUL_MMA_CHUNKS

/* The 64 activations of a chunk, of rows m, m + 8 and so on; 0 for rows >= M, beyond K, and for chunk -1. All are
 * requested together: a branch around each load would wait for the one before. */
template <int COUNT>
__device__ __forceinline__ void activations64_groups(
    int (&to)[COUNT][16], const signed char *a, long long lda, int m, int M, int chunk, int K, bool fast)
{
    if (fast && chunk >= 0 && CHUNK * (chunk + 1) <= K) {
#pragma unroll
        for (int c = 0; c < COUNT; c++) {
            const int4 *const from = (const int4 *)(a + (m + 8 * c) * lda + CHUNK * chunk);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int4 four = m + 8 * c < M ? from[i] : make_int4(0, 0, 0, 0);
                to[c][4 * i] = four.x, to[c][4 * i + 1] = four.y, to[c][4 * i + 2] = four.z, to[c][4 * i + 3] = four.w;
            }
        }
        return;
    }
#pragma unroll
    for (int c = 0; c < COUNT; c++)
#pragma unroll
        for (int i = 0; i < 16; i++)
            to[c][i] = 0;
#pragma unroll 1
    for (int at = 0; chunk >= 0 && at < 16 * COUNT; at++) { /* selects, because registers cannot be indexed */
        const int row = m + at / 16 * 8, word = row < M ? bytes4(a + row * lda, CHUNK * chunk + 4 * (at % 16), K) : 0;
#pragma unroll
        for (int c = 0; c < COUNT; c++)
#pragma unroll
            for (int i = 0; i < 16; i++)
                to[c][i] = at == 16 * c + i ? word : to[c][i];
    }
}

/* acc += 64 * weights * activations: a chunk of each of COUNT8 groups of 8 rows of weights, decoded once for COUNT
 * groups of 8 rows of activations. */
template <int COUNT8, int COUNT>
__device__ __forceinline__ void multiply_chunks(
    int (&acc)[COUNT][(COUNT8 + 1) / 2][4], const uint4 (&words)[COUNT8], const int (&b)[COUNT][16])
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned up = 1u << (6 - 2 * i);
#pragma unroll
            for (int p = 0; p < (COUNT8 + 1) / 2; p++) {
                const uint4 low = words[2 * p], high = words[2 * p + 1 < COUNT8 ? 2 * p + 1 : 2 * p];
                const unsigned a0 = weights4(h ? low.z : low.x, up), a2 = weights4(h ? low.w : low.y, up);
                unsigned a1 = 0, a3 = 0;
                if (2 * p + 1 < COUNT8)
                    a1 = weights4(h ? high.z : high.x, up), a3 = weights4(h ? high.w : high.y, up);
#pragma unroll
                for (int c = 0; c < COUNT; c++)
                    mma_signed(acc[c][p], a0, a1, a2, a3, (unsigned)b[c][8 * h + i], (unsigned)b[c][8 * h + 4 + i]);
            }
        }
}
#endif
