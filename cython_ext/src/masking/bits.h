/* The only list of the bits by which a processor reports its features: cpu.c reads those of isas.h from it.
 *
 * x86-64: CPUID bits by step, from Intel's and AMD's manuals, with their names in /proc/cpuinfo. A process that is
 * limited to a step finds none of the steps above it. Steps are instruction sets of isas.h in falling order, and avx,
 * for which no kernel here exists but to which other libraries dispatch. A set needs a step of its own only if its bits
 * are in none. A step includes the bits that processors got together with it, so that code which tests only those is
 * limited too. The bits of leaf 13 are the registers that the processor can save. */
#ifndef TM_MASKING_BITS_H
#define TM_MASKING_BITS_H

#define TM_STEPS(X) X(amx) X(avx512) X(avxvnni) X(avx2) X(avx) X(sse41) X(scalar)

/* X(step, signature): leaf 1 of an Intel processor of that step, for function clones and code that dispatch by the
 * model: Skylake-SP, Alder Lake, Haswell, Sandy Bridge, Nehalem, and the first Core 2. */
#define TM_SIGNATURES(X) \
    X(avx512, 0x50654) X(avxvnni, 0x90672) X(avx2, 0x306c3) X(avx, 0x206a7) X(sse41, 0x106a5) X(scalar, 0x6f6)

enum { TM_EAX, TM_EBX, TM_ECX, TM_EDX };

/* X(step, leaf, subleaf, register, bit, name); "" if /proc/cpuinfo has none. */
#define TM_BITS(X) \
    X(amx, 7, 0, TM_EDX, 24, "amx_tile") \
    X(amx, 7, 0, TM_EDX, 25, "amx_int8") \
    X(amx, 7, 0, TM_EDX, 22, "amx_bf16") \
    X(amx, 7, 1, TM_EAX, 21, "amx_fp16") \
    X(amx, 7, 1, TM_EDX, 8, "amx_complex") \
    X(amx, 13, 0, TM_EAX, 17, "") \
    X(amx, 13, 0, TM_EAX, 18, "") \
    X(avx512, 7, 0, TM_EBX, 16, "avx512f") \
    X(avx512, 7, 0, TM_EBX, 17, "avx512dq") \
    X(avx512, 7, 0, TM_EBX, 21, "avx512ifma") \
    X(avx512, 7, 0, TM_EBX, 26, "avx512pf") \
    X(avx512, 7, 0, TM_EBX, 27, "avx512er") \
    X(avx512, 7, 0, TM_EBX, 28, "avx512cd") \
    X(avx512, 7, 0, TM_EBX, 30, "avx512bw") \
    X(avx512, 7, 0, TM_EBX, 31, "avx512vl") \
    X(avx512, 7, 0, TM_ECX, 1, "avx512vbmi") \
    X(avx512, 7, 0, TM_ECX, 6, "avx512_vbmi2") \
    X(avx512, 7, 0, TM_ECX, 11, "avx512_vnni") \
    X(avx512, 7, 0, TM_ECX, 12, "avx512_bitalg") \
    X(avx512, 7, 0, TM_ECX, 14, "avx512_vpopcntdq") \
    X(avx512, 7, 0, TM_EDX, 2, "avx512_4vnniw") \
    X(avx512, 7, 0, TM_EDX, 3, "avx512_4fmaps") \
    X(avx512, 7, 0, TM_EDX, 8, "avx512_vp2intersect") \
    X(avx512, 7, 0, TM_EDX, 23, "avx512_fp16") \
    X(avx512, 7, 1, TM_EAX, 5, "avx512_bf16") \
    X(avx512, 7, 1, TM_EDX, 19, "avx10") \
    X(avx512, 13, 0, TM_EAX, 5, "") \
    X(avx512, 13, 0, TM_EAX, 6, "") \
    X(avx512, 13, 0, TM_EAX, 7, "") \
    X(avxvnni, 7, 1, TM_EAX, 4, "avx_vnni") \
    X(avxvnni, 7, 1, TM_EAX, 23, "avx_ifma") \
    X(avxvnni, 7, 1, TM_EDX, 4, "avx_vnni_int8") \
    X(avxvnni, 7, 1, TM_EDX, 5, "avx_ne_convert") \
    X(avxvnni, 7, 1, TM_EDX, 10, "avx_vnni_int16") \
    X(avx2, 7, 0, TM_EBX, 5, "avx2") \
    X(avx2, 7, 0, TM_EBX, 3, "bmi1") \
    X(avx2, 7, 0, TM_EBX, 8, "bmi2") \
    X(avx2, 7, 0, TM_ECX, 9, "vaes") \
    X(avx2, 7, 0, TM_ECX, 10, "vpclmulqdq") \
    X(avx2, 1, 0, TM_ECX, 12, "fma") \
    X(avx2, 1, 0, TM_ECX, 22, "movbe") \
    X(avx2, 1, 0, TM_ECX, 29, "f16c") \
    X(avx2, 0x80000001, 0, TM_ECX, 5, "abm") \
    X(avx, 1, 0, TM_ECX, 28, "avx") \
    X(avx, 0x80000001, 0, TM_ECX, 11, "xop") \
    X(avx, 0x80000001, 0, TM_ECX, 16, "fma4") \
    X(avx, 13, 0, TM_EAX, 2, "") \
    X(sse41, 1, 0, TM_ECX, 19, "sse4_1") \
    X(sse41, 1, 0, TM_ECX, 20, "sse4_2") \
    X(sse41, 1, 0, TM_ECX, 0, "pni") \
    X(sse41, 1, 0, TM_ECX, 9, "ssse3") \
    X(sse41, 1, 0, TM_ECX, 23, "popcnt") \
    X(sse41, 1, 0, TM_ECX, 1, "pclmulqdq") \
    X(sse41, 1, 0, TM_ECX, 25, "aes") \
    X(sse41, 7, 0, TM_EBX, 29, "sha_ni") \
    X(sse41, 7, 0, TM_ECX, 8, "gfni") \
    X(sse41, 0x80000001, 0, TM_ECX, 6, "sse4a")

/* aarch64: X(name, word, bit) of the words that Linux reports. The bits have always had these numbers, and older headers
 * lack the names of later ones. */
#define TM_WORDS(X) \
    X("asimd", AT_HWCAP, 1) \
    X("crc32", AT_HWCAP, 7) \
    X("atomics", AT_HWCAP, 8) \
    X("asimdrdm", AT_HWCAP, 12) \
    X("asimddp", AT_HWCAP, 20) \
    X("i8mm", AT_HWCAP2, 13)

#endif
