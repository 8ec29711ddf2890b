/* The instruction sets: the only list of them. tables.h has the kernels for each, from the files that are there.
 * Kernels and their tables are compiled from both; Python, the tests and the fuzz targets read them through the module
 * cpu. */
#ifndef TM_ISAS_H
#define TM_ISAS_H

#include <stdint.h>

/* One instruction set a line: its rank, the CPU features that it needs, its tier (harness/spec/variant.py), and a
 * description.
 *
 * Features have the names of CPUID and of the compilers' target attribute, on aarch64 those of Linux (/proc/cpuinfo);
 * masking/bits.h has their bits. A kernel is preferred to those of lower rank. Ranks leave gaps and rise with the tier. avx512
 * means F, BW, DQ, VL and VNNI (Cascade Lake, Ice Lake, Zen 4 and later); amx, these and int8 tiles (Sapphire Rapids
 * and later). */
#define TM_ISA_scalar 0, "", "BASELINE", "plain C"
#define TM_ISA_sse41 10, "sse4.1", "OPTIMIZED", "SSE4.1, 16-byte vectors"
#define TM_ISA_avx2 20, "avx2,f16c", "HIGHLY_OPTIMIZED", "AVX2, 32-byte vectors"
#define TM_ISA_avxvnni 30, "avx2,f16c,avxvnni", "HIGHLY_OPTIMIZED", "AVX2 with AVX-VNNI, 32-byte vectors"
#define TM_ISA_avx512 \
    40, "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", "EXTREMELY_OPTIMIZED", \
        "AVX-512 with VNNI, 64-byte vectors"
#define TM_ISA_amx \
    50, "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8", "EXTREMELY_OPTIMIZED", \
        "AMX for int8, tiles of 16 rows of 64 bytes; AVX-512 for few rows"

/* Features of x86-64 that libraries like ggml use, and no kernel here. */
#define TM_FEATURES_OF_LIBRARIES "ssse3,avx,fma,avx512vbmi"

/* Of aarch64. A compiler that may use dot products may also use the other features of Armv8.2, so these are checked
 * too. */
#define TM_ISA_neon 15, "asimd", "OPTIMIZED", "NEON, 16-byte vectors"
#define TM_ISA_dotprod \
    25, "asimd,crc32,atomics,asimdrdm,asimddp", "HIGHLY_OPTIMIZED", "NEON with dot products, 16-byte vectors"
#define TM_ISA_i8mm \
    45, "asimd,crc32,atomics,asimdrdm,asimddp,i8mm", "EXTREMELY_OPTIMIZED", \
        "NEON with int8 matrix products, 16-byte vectors"

/* The names in the compilers' target attribute. */
#define TM_TARGET_neon "arch=armv8-a"
#define TM_TARGET_dotprod "arch=armv8.2-a+dotprod"
#define TM_TARGET_i8mm "arch=armv8.2-a+dotprod+i8mm"

/* An instruction set, as {"avx2", TM_ISA_avx2} initializes it. */
typedef struct tm_isa {
    const char *name;
    int32_t rank;
    const char *features; /* separated by commas */
    const char *tier;
    const char *summary;
} tm_isa;

/* A table of kernels is a folder with a file <set>.c for each instruction set, of which scalar.c has TM_TABLE(NAME).
 * ternary_matmul has a table for each format of weights, each except tile64 in a folder of its own. The probes are in
 * ceilings/. Kernels for another architecture than the compiler's are neither compiled nor listed. */
#if defined(__x86_64__)
#define TM_X86_64(...) __VA_ARGS__
#define TM_AARCH64(...)
#elif defined(__aarch64__)
#define TM_X86_64(...)
#define TM_AARCH64(...) __VA_ARGS__
#else
#define TM_X86_64(...)
#define TM_AARCH64(...)
#endif
#include "tables.h"

#endif
