/* vpdpbusd in assembly, of 32 and 64 bytes: its intrinsics make GCC 12 keep each sum twice, as lanes of int64 and of int32,
 * and move it in each turn of a loop, or spill it. Included behind TM_BEGIN(avx512). */
#ifndef TM_DOT_AVX512_H
#define TM_DOT_AVX512_H

static inline __attribute__((always_inline)) __m256i tm_dot_32(__m256i sum_i32x8, __m256i w_u8x32, __m256i a_i8x32)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum_i32x8) : "v"(w_u8x32), "vm"(a_i8x32));
    return sum_i32x8;
}

static inline __attribute__((always_inline)) __m512i tm_dot_64(__m512i sum_i32x16, __m512i w_u8x64, __m512i a_i8x64)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum_i32x16) : "v"(w_u8x64), "vm"(a_i8x64));
    return sum_i32x16;
}

#endif
