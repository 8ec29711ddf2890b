/* What all kernels share: the head of each call's arguments, the target brackets, and the tables of kernels.
 *
 * Each file holds the code of one instruction set (isas.h). The brackets make GCC and clang compile its functions for
 * that set, so the whole extension is built with one set of flags. */
#ifndef TM_ISA_H
#define TM_ISA_H

#include "isas.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define TM_X86 1
#else
#define TM_X86 0
#endif

#if defined(__aarch64__)
#define TM_ARM 1
#if defined(__clang__) && __clang_major__ < 16
#error "clang has the intrinsics of an instruction set that an attribute names from version 16 on; take that, or GCC"
#endif
#else
#define TM_ARM 0
#endif

/* A file's code begins on a cache line, so that code linked before it does not move its loops: a shift by 48 bytes
 * slowed the SSE4.1 product on Zen 4. Compilers put this before the functions. */
#if defined(__ELF__)
__asm__(".pushsection .text\n.p2align 6\n.popsection");
#endif

/* The first member of every kernel's arguments. The code that runs fills it in. */
typedef struct tm_run {
    int32_t ran;     /* rank of the instruction set of the code that ran last, or -1 */
    int32_t threads; /* in: most threads to use; at least 1 */
    int32_t used;    /* threads that took part in the last run */
    int32_t pad;
    int64_t runs;    /* number of runs */
    int64_t bad;     /* index of the first input element that violates the contract, or -1 */
} tm_run;

/* Returns 0. `args` begins with a tm_run. */
typedef int (*tm_kernel)(void *args);

/* A kernel bound to its arguments: what the clock times. */
typedef struct tm_call {
    tm_kernel fn;
    void *args;
} tm_call;

/* Ends a run; `rank` is the TM_RANK of the instruction set. */
static inline int tm_finish(tm_run *run, int32_t rank)
{
    run->ran = rank;
    run->runs += 1;
    return 0;
}

/* Columns of an instruction set's line: TM_RANK(avx2) is a number, TM_FEATURES(avx2) a string. */
#define TM_FIRST(first, ...) first
#define TM_SECOND(first, second, ...) second
#define TM_APPLY(macro, ...) macro(__VA_ARGS__)
#define TM_RANK(set) TM_APPLY(TM_FIRST, TM_ISA_##set)
#define TM_FEATURES(set) TM_APPLY(TM_SECOND, TM_ISA_##set)

/* TM_BEGIN(avx2) ... TM_END: the functions between are compiled for that instruction set. */
#define TM_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TM_TARGET(features) TM_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define TM_END TM_PRAGMA(clang attribute pop)
#else
#define TM_TARGET(features) TM_PRAGMA(GCC push_options) TM_PRAGMA(GCC target(features))
#define TM_END TM_PRAGMA(GCC pop_options)
#endif
#if TM_ARM
#define TM_BEGIN(set) TM_TARGET(TM_TARGET_##set)
#else
#define TM_BEGIN(set) TM_TARGET(TM_FEATURES(set))
#endif

/* A kernel in its op's table, which ends with an `fn` of NULL. */
typedef struct tm_entry {
    tm_isa isa;
    tm_kernel fn;
} tm_entry;

/* TM_KERNELS(op) in a header declares an op's kernels; TM_TABLE(op) in its scalar.c defines the table in which the
 * boundary looks them up. */
#define TM_DECLARED(op, set) int tm_##op##_##set(void *args);
#define TM_ENTRY(op, set) {{#set, TM_ISA_##set}, tm_##op##_##set},
#define TM_KERNELS(op) TM_KERNELS_##op(TM_DECLARED, op) extern const tm_entry tm_##op[]
#define TM_TABLE(op) const tm_entry tm_##op[] = {TM_KERNELS_##op(TM_ENTRY, op){{0}, NULL}}

#endif
