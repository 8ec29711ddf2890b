/* The instruction sets, and the ops with a kernel for each: the only list of either. Kernels and their tables are
 * compiled from it; Python, the tests and the fuzz targets read it through the module cpu. */
#ifndef TM_ISAS_H
#define TM_ISAS_H

#include <stdint.h>

/* One instruction set a line: its rank, the CPU features that it needs, its tier (harness/spec/variant.py), and a
 * description.
 *
 * Features have the names of CPUID and of the compilers' target attribute, on aarch64 those of Linux (/proc/cpuinfo);
 * cpu.c checks each. A kernel is preferred to those of lower rank. Ranks leave gaps and rise with the tier. avx512
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

/* One table of kernels a line: the instruction sets with a file src/<op>/<set>.c, scalar first. ternary_matmul has a
 * table for each format of weights, each except tile64 in a folder of its own. The probes are in src/ceilings/. Kernels
 * for another architecture than the compiler's are neither compiled nor listed. */
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
#define TM_KERNELS_absmean_quantize(X, op) X(op, scalar) TM_X86_64(X(op, sse41) X(op, avx2) X(op, avx512))
#define TM_KERNELS_activation_quantize(X, op) X(op, scalar) TM_X86_64(X(op, sse41) X(op, avx2) X(op, avx512))
#define TM_KERNELS_i2s_dequantize(X, op) X(op, scalar) TM_X86_64(X(op, sse41) X(op, avx2) X(op, avx512))
#define TM_KERNELS_i2s_quantize(X, op) X(op, scalar) TM_X86_64(X(op, sse41) X(op, avx2) X(op, avx512))
#define TM_KERNELS_probe(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, sse41) X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod) X(op, i8mm))
#define TM_KERNELS_ternary_matmul(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, sse41) X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod) X(op, i8mm))
#define TM_KERNELS_ternary_matmul_i2_s_x86(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod))
#define TM_KERNELS_ternary_matmul_iq2_bn_r4(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod))
#define TM_KERNELS_ternary_matmul_q2_0(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod))
#define TM_KERNELS_ternary_matmul_tile80(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512)) \
    TM_AARCH64(X(op, neon) X(op, dotprod) X(op, i8mm))
#define TM_KERNELS_ternary_matmul_tq1_0(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod))
#define TM_KERNELS_ternary_matmul_tq2_0(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avxvnni) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod))
#define TM_KERNELS_ternary_matmul_tl1(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod) X(op, i8mm))
#define TM_KERNELS_ternary_matmul_tl2(X, op) \
    X(op, scalar) \
    TM_X86_64(X(op, avx2) X(op, avx512) X(op, amx)) \
    TM_AARCH64(X(op, neon) X(op, dotprod) X(op, i8mm))
#define TM_KERNELS_ternary_quantize(X, op) X(op, scalar) TM_X86_64(X(op, sse41) X(op, avx2) X(op, avx512))

#define TM_OPS(X) \
    X(absmean_quantize) \
    X(activation_quantize) \
    X(i2s_dequantize) \
    X(i2s_quantize) \
    X(probe) \
    X(ternary_matmul) \
    X(ternary_matmul_i2_s_x86) \
    X(ternary_matmul_iq2_bn_r4) \
    X(ternary_matmul_q2_0) \
    X(ternary_matmul_tile80) \
    X(ternary_matmul_tq1_0) \
    X(ternary_matmul_tq2_0) \
    X(ternary_matmul_tl1) \
    X(ternary_matmul_tl2) \
    X(ternary_quantize)

#endif
