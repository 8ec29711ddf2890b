/* Shared by the CUDA kernels of ternary_matmul: decoding of weights, loads of activations, factors and stores of
 * outputs. */
#ifndef TRITMARK_TERNARY_MATMUL_COMMON
#define TRITMARK_TERNARY_MATMUL_COMMON
#include "../cuda/tiles/operands.cuh"

#define ONES 0x01010101u

/* Four weights of a row16 word, times 64, as signed bytes. Multiplying by `up`, 4^(3 - i), moves field i to the top of
 * each byte. Adding 3 there makes codes 0, 1, 2 the two's complement of -1, 0, 1 in two bits. A carry into the next
 * byte ends in its six lower bits: there is no code 3, so they are never all set. */
__device__ __forceinline__ unsigned weights4(unsigned word, unsigned up)
{
    return (word * up + 0xc0c0c0c0u) & 0xc0c0c0c0u;
}

/* A scale, loaded at this point; the compiler would delay the load to the first use. */
__device__ __forceinline__ float scale_early(const float *from)
{
#ifdef TRITMARK_SIMULATOR
    return *from;
#else
    float to;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(to) : "l"(from));
    return to;
#endif
}

/* 4 activations from k as a word, 0 beyond K; any alignment. */
__device__ __forceinline__ int bytes4(const signed char *row, long long k, int K)
{
    int word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (k + i < K)
            word |= (int)(unsigned char)row[k + i] << 8 * i;
    return word;
}

/* 16 activations from k, 0 beyond K. `fast`: rows are aligned to 16 bytes. */
__device__ __forceinline__ int4 activations16(const signed char *row, long long k, int K, bool fast)
{
    if (fast && k + 16 <= K)
        return *(const int4 *)(row + k);
    int4 to = make_int4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i < 4; i++) { /* selects, because registers cannot be indexed */
        const int word = bytes4(row, k + 4 * i, K);
        to.x = i == 0 ? word : to.x;
        to.y = i == 1 ? word : to.y;
        to.z = i == 2 ? word : to.z;
        to.w = i == 3 ? word : to.w;
    }
    return to;
}

/* 4 activations at any address, by aligned words: the first `left` exist, the rest are 0. */
__device__ __forceinline__ int activations4_shifted(const signed char *from, int left)
{
    if (left < 8) /* The second word may extend past the array. */
        return bytes4(from, 0, left);
    const unsigned skew = (unsigned)(unsigned long long)from & 3u;
    const unsigned *const words = (const unsigned *)(from - skew);
    return (int)((words[0] | (unsigned long long)words[1] << 32) >> 8 * skew);
}

/* 16 activations in the same way. */
__device__ __forceinline__ int4 activations16_shifted(const signed char *from, int left)
{
    return make_int4(
        activations4_shifted(from, left), activations4_shifted(from + 4, left - 4),
        activations4_shifted(from + 8, left - 8), activations4_shifted(from + 12, left - 12));
}

/* 16 activations by less code, of a row that is aligned to 16 bytes, k a multiple of 16. */
__device__ __forceinline__ int4 activations16_aligned(const signed char *row, int k, int K)
{
    if (k + 16 <= K)
        return *(const int4 *)(row + k);
    unsigned v[4] = {};
#pragma unroll 1
    for (int i = min(15, K - 1 - k); i >= 0; i--) {
        v[3] = v[3] << 8 | v[2] >> 24, v[2] = v[2] << 8 | v[1] >> 24, v[1] = v[1] << 8 | v[0] >> 24, v[0] <<= 8;
        v[0] |= (unsigned char)row[k + i];
    }
    return make_int4((int)v[0], (int)v[1], (int)v[2], (int)v[3]);
}

/* (double)weight_scale / (double)act_scale, the same bits as on the CPU. Scales are finite and above zero; an act_scale
 * of NaN gives NaN. These are the steps of __ddiv_rn for numbers away from the ends of double's range, as all quotients
 * of floats are. Its branch for other numbers keeps the compiler from moving the division between other
 * instructions. */
__device__ __forceinline__ double output_factor(float weight_scale, float act_scale)
{
#ifdef TRITMARK_SIMULATOR
    return (double)weight_scale / (double)act_scale;
#else
    const double dividend = weight_scale, divisor = act_scale;
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(divisor)); /* 20 correct bits */
    double missing = __fma_rn(-divisor, inverse, 1.0);
    inverse = __fma_rn(inverse, __fma_rn(missing, missing, missing), inverse);
    missing = __fma_rn(-divisor, inverse, 1.0);
    inverse = __fma_rn(inverse, missing, inverse);
    const double quotient = __dmul_rn(dividend, inverse);
    return __fma_rn(inverse, __fma_rn(-divisor, quotient, dividend), quotient);
#endif
}

/* output_factor, divided at this point; the compiler would move it to the first use, after the sums. */
__device__ __forceinline__ double output_factor_early(float weight_scale, float act_scale)
{
#ifndef TRITMARK_SIMULATOR
    asm volatile("" : "+f"(act_scale) : : "memory");
#endif
    double factor = output_factor(weight_scale, act_scale);
#ifndef TRITMARK_SIMULATOR
    asm volatile("" : "+d"(factor) : : "memory");
#endif
    return factor;
}

/* One output: kind 0 int32, 1 float32, 2 bfloat16, 3 float16 (the float32, narrowed). */
__device__ __forceinline__ void store(void *out, long long at, int acc, double factor, int kind)
{
    if (kind == 0) {
        ((int *)out)[at] = acc;
        return;
    }
    const float value = __double2float_rn(__dmul_rn((double)acc, factor));
    if (kind == 1) {
        ((float *)out)[at] = value;
        return;
    }
    ((unsigned short *)out)[at] = narrowed(value, kind);
}
#endif
