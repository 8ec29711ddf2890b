/* vpdpbusd of AVX-VNNI in C, for processors without it. Included before a file of kernels. */
#define _GNU_SOURCE /* as pool.c has it, which comes behind this */
#ifndef DPBUSD_H
#define DPBUSD_H

#include <immintrin.h>
#include <stdint.h>

#pragma GCC push_options
#pragma GCC target("avx2")

/* sum + four products of unsigned bytes of a and signed ones of b, in each of 8 lanes, modulo 2^32. */
static inline __m256i dpbusd(__m256i sum, __m256i a, __m256i b)
{
    uint8_t left[32];
    int8_t right[32];
    uint32_t lanes[8];
    _mm256_storeu_si256((__m256i *)left, a);
    _mm256_storeu_si256((__m256i *)right, b);
    _mm256_storeu_si256((__m256i *)lanes, sum);
    for (int i = 0; i < 32; i++)
        lanes[i / 4] += (uint32_t)(left[i] * right[i]);
    return _mm256_loadu_si256((const __m256i *)lanes);
}

#pragma GCC pop_options
#endif
