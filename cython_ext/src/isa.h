/* What every kernel shares: the instruction sets, the header that each call's arguments begin with, and the target brackets.
 *
 * One instruction set a file; the brackets make GCC and clang compile that file's functions for it, so the whole extension is built
 * with one set of flags. avx512 means F, BW, DQ, VL and VNNI (Cascade Lake, Ice Lake, Zen 4 and later). */
#ifndef TM_ISA_H
#define TM_ISA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define TM_X86 1
#include <immintrin.h>
#else
#define TM_X86 0
#endif

enum tm_isa { TM_NONE = -1, TM_SCALAR, TM_SSE41, TM_AVX2, TM_AVX512, TM_ISA_COUNT };

/* The first member of every kernel's arguments. The code that ran fills it in. */
typedef struct tm_run {
    int32_t ran;     /* enum tm_isa of the code that ran last */
    int32_t threads; /* in: how many threads may be used; at least 1 */
    int32_t used;    /* how many threads took part in the last run */
    int32_t pad;
    int64_t runs;    /* how often it has run */
    int64_t bad;     /* index of the first input element that the contract forbids, or -1 */
} tm_run;

/* Returns 0. `args` begins with a tm_run. */
typedef int (*tm_kernel)(void *args);

/* A kernel bound to its arguments: what the clock times. */
typedef struct tm_call {
    tm_kernel fn;
    void *args;
} tm_call;

/* Where an instruction set's code ends its run. */
static inline int tm_finish(tm_run *run, enum tm_isa isa)
{
    run->ran = isa;
    run->runs += 1;
    return 0;
}

#define TM_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TM_BEGIN(features) TM_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define TM_END TM_PRAGMA(clang attribute pop)
#else
#define TM_BEGIN(features) TM_PRAGMA(GCC push_options) TM_PRAGMA(GCC target(features))
#define TM_END TM_PRAGMA(GCC pop_options)
#endif
#define TM_TARGET_SSE41 "sse4.1"
#define TM_TARGET_AVX2 "avx2,f16c"
#define TM_TARGET_AVX512 "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"

/* TM_KERNEL(op) in a header declares an op's kernels; TM_TABLE(op) in its scalar.c makes the table that the boundary indexes by tm_isa. */
#define TM_KERNEL(op) \
    int tm_##op##_scalar(void *args); \
    int tm_##op##_sse41(void *args); \
    int tm_##op##_avx2(void *args); \
    int tm_##op##_avx512(void *args); \
    extern const tm_kernel tm_##op[TM_ISA_COUNT]
#if TM_X86
#define TM_TABLE(op) \
    const tm_kernel tm_##op[TM_ISA_COUNT] = {tm_##op##_scalar, tm_##op##_sse41, tm_##op##_avx2, tm_##op##_avx512}
#else
#define TM_TABLE(op) const tm_kernel tm_##op[TM_ISA_COUNT] = {tm_##op##_scalar, NULL, NULL, NULL}
#endif

#endif
