#include "cpu.h"
#include "../isa.h"
#include "../amx_tiles.h"

#include <unistd.h>

tm_listed tm_listed_at(size_t index)
{
#define KERNEL(op, set) {#op, {#set, TM_ISA_##set}},
#define OP(op) TM_KERNELS_##op(KERNEL, op)
    static const tm_listed kernels[] = {TM_OPS(OP)};
    static const tm_listed none = {0};
    return index < sizeof kernels / sizeof *kernels ? kernels[index] : none;
}

#if TM_X86

/* __builtin_cpu_supports reads CPUID and, for the wider registers, XGETBV: a feature that the system does not save is
 * not reported. It takes only literals, hence one small function for each feature. */
#define FEATURES(X) \
    X(ssse3, "ssse3") \
    X(sse41, "sse4.1") \
    X(avx, "avx") \
    X(avx2, "avx2") \
    X(fma, "fma") \
    X(avx512f, "avx512f") \
    X(avx512bw, "avx512bw") \
    X(avx512dq, "avx512dq") \
    X(avx512vl, "avx512vl") \
    X(avx512vbmi, "avx512vbmi") \
    X(avx512vnni, "avx512vnni")

#define PROBE(id, name) \
    static int has_##id(void) { return __builtin_cpu_supports(name) != 0; }
FEATURES(PROBE)

/* Some supported compilers do not know "f16c" and "avxvnni", so these are read from CPUID; their registers are
 * AVX's. */
#include <cpuid.h>

static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}

static int has_avxvnni(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) != 0;
}

/* Requires the processor's bit, the system's support of tiles (XCR0), and this process's permission to use them. */
static int has_amx(unsigned bit)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bit) != 0 && tm_tiles_permitted();
}

static int has_amx_tile(void) { return has_amx(1u << 24); }
static int has_amx_int8(void) { return has_amx(1u << 25); }

static const struct {
    const char *name;
    int (*here)(void);
} features[] = {
#define ROW(id, name) {name, has_##id},
    FEATURES(ROW){"f16c", has_f16c},
    {"avxvnni", has_avxvnni},
    {"amx-tile", has_amx_tile},
    {"amx-int8", has_amx_int8},
};
enum { COUNT = sizeof features / sizeof *features };

const char *tm_feature_name(size_t index) { return index < COUNT ? features[index].name : NULL; }
int tm_feature_here(size_t index) { return index < COUNT && features[index].here(); }

#elif TM_ARM && defined(__linux__)

/* Linux reports in two words what the processor has and the system saves. The bits have always had these numbers, and
 * older headers lack the names of later ones. */
#include <sys/auxv.h>

#ifndef AT_HWCAP2
#define AT_HWCAP2 26
#endif

static const struct {
    const char *name;
    unsigned long word;
    int bit;
} features[] = {
    {"asimd", AT_HWCAP, 1},     {"crc32", AT_HWCAP, 7},    {"atomics", AT_HWCAP, 8},
    {"asimdrdm", AT_HWCAP, 12}, {"asimddp", AT_HWCAP, 20}, {"i8mm", AT_HWCAP2, 13},
};
enum { COUNT = sizeof features / sizeof *features };

const char *tm_feature_name(size_t index) { return index < COUNT ? features[index].name : NULL; }
int tm_feature_here(size_t index)
{
    return index < COUNT && (getauxval(features[index].word) >> features[index].bit & 1) != 0;
}

#else

const char *tm_feature_name(size_t index) { return (void)index, NULL; }
int tm_feature_here(size_t index) { return (void)index, 0; }

#endif

long tm_cache_bytes(int level)
{
    long bytes = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
    if (level == 1)
        bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    if (level == 2)
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (level == 3)
        bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
    (void)level;
#endif
    return bytes > 0 ? bytes : 0;
}

#if defined(__clang__)
const char *tm_compiler(void) { return "clang " __clang_version__; }
#else
const char *tm_compiler(void) { return "gcc " __VERSION__; }
#endif
