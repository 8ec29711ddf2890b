/* vpdpbusd in assembly, for 32 and 64 bytes. With its intrinsics GCC 12 keeps two copies of each sum, as int64 and as
 * int32 lanes, and moves it in each iteration, or spills it. Included behind TM_BEGIN(avx512). */
#ifndef TM_DOT_AVX512_H
#define TM_DOT_AVX512_H

/* For 32 bytes, with the names of dots_dpbusd.h. */
typedef int32_t tm_dots __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) tm_dots tm_dots_added(tm_dots s, __m256i codes, __m256i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(codes), "vm"(x));
    return s;
}

static inline __attribute__((always_inline)) __m256i tm_dots_sum(tm_dots s) { return (__m256i)s; }

static inline __attribute__((always_inline)) __m512i tm_dot_64(__m512i sum_i32x16, __m512i w_u8x64, __m512i a_i8x64)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum_i32x16) : "v"(w_u8x64), "vm"(a_i8x64));
    return sum_i32x16;
}

#endif
