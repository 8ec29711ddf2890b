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

#include "../masking/bits.h"

#include <cpuid.h>
#include <string.h>

#define STEP(step) STEP_##step,
enum { TM_STEPS(STEP) };

static const struct bit {
    int step;
    uint32_t leaf, subleaf;
    int reg, bit;
    const char *name;
} bits[] = {
#define BIT(step, leaf, subleaf, reg, bit, name) {STEP_##step, leaf, subleaf, reg, bit, name},
    TM_BITS(BIT)};
enum { BITS = sizeof bits / sizeof *bits };

static const char *const features[] = {
#define NAME(name) name,
    TM_FEATURES_X86_64(NAME)};

/* Whether two names of a feature differ in punctuation alone, as "sse4.1" and "sse4_1" do. */
static int same_name(const char *a, const char *b)
{
    static const char marks[] = "._-";
    a += strspn(a, marks), b += strspn(b, marks);
    while (*a && *a == *b) {
        a += 1 + strspn(a + 1, marks);
        b += 1 + strspn(b + 1, marks);
    }
    return *a == *b;
}

/* Whether the system saves the registers of a step and of those below it: bits of XCR0, which have the numbers of
 * leaf 13. This process also needs permission for tiles. */
static int saved(int step)
{
    unsigned wanted = 0, a, b, c, d, high;
    for (int i = 0; i < BITS; i++)
        wanted |= bits[i].leaf == 13 && bits[i].step >= step ? 1u << bits[i].bit : 0;
    if (!wanted)
        return 1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(high) : "c"(0));
    return (a & wanted) == wanted && (step != STEP_amx || tm_tiles_permitted());
}

const char *tm_feature_name(size_t index)
{
    return index < sizeof features / sizeof *features ? features[index] : NULL;
}

int tm_feature_here(size_t index)
{
    const char *name = tm_feature_name(index);
    uint32_t out[4];
    for (int i = 0; name && i < BITS; i++)
        if (same_name(bits[i].name, name))
            return __get_cpuid_count(bits[i].leaf, bits[i].subleaf, &out[0], &out[1], &out[2], &out[3]) &&
                   (out[bits[i].reg] >> bits[i].bit & 1) && saved(bits[i].step);
    return 0;
}

#elif TM_ARM && defined(__linux__)

/* Linux reports in two words what the processor has and the system saves. */
#include "../masking/bits.h"

#include <sys/auxv.h>

#ifndef AT_HWCAP2
#define AT_HWCAP2 26
#endif

static const struct {
    const char *name;
    unsigned long word;
    int bit;
} features[] = {
#define WORD(name, word, bit) {name, word, bit},
    TM_WORDS(WORD)};
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
