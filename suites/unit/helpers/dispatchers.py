"""Kernels in C with a path for each of several instruction sets, one for each way of finding out which are here."""

from __future__ import annotations

_HEAD = """
#include <cpuid.h>
#include <dlfcn.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
static void plain(const int8_t *q, float scale, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)q[i] * scale;
    PLAIN;
}
__attribute__((target("avx2"))) static void avx2(const int8_t *q, float scale, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(q + i))));
        _mm256_storeu_ps(x + i, _mm256_mul_ps(v, _mm256_set1_ps(scale)));
    }
    for (; i < n; i++) x[i] = (float)q[i] * scale;
    AVX2;
}
__attribute__((target("avx512f"))) static void avx512(const int8_t *q, float scale, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(q + i))));
        _mm512_storeu_ps(x + i, _mm512_mul_ps(v, _mm512_set1_ps(scale)));
    }
    for (; i < n; i++) x[i] = (float)q[i] * scale;
}
typedef void path(const int8_t *q, float scale, float *x, int64_t n);
"""
_CALL = """
void f(const int8_t *q, float scale, float *x, int64_t n)
{
    (HAS512 ? avx512 : HAS2 ? avx2 : plain)(q, scale, x, n);
}
"""
_CPUINFO = """
static int listed(const char *name)
{
    static char line[1 << 16];
    int found = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = !strncmp(line, "flags", 5) && strstr(line, name) != 0;
    if (file)
        fclose(file);
    return found;
}
"""
_INLINE = """
static unsigned ebx(void)
{
    unsigned a = 7, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return b;
}
"""
_GIVEN = """
static int has(int bit) { unsigned a, b, c, d; return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> bit & 1); }
"""
_IFUNC = """
static path *resolve(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? avx512 : __builtin_cpu_supports("avx2") ? avx2 : plain;
}
static path chosen __attribute__((ifunc("resolve")));
void f(const int8_t *q, float scale, float *x, int64_t n) { chosen(q, scale, x, n); }
"""
_TABLE = """
static path *table = plain;
__attribute__((constructor)) static void begin(void)
{
    table = __builtin_cpu_supports("avx512f") ? avx512 : __builtin_cpu_supports("avx2") ? avx2 : plain;
}
void f(const int8_t *q, float scale, float *x, int64_t n) { table(q, scale, x, n); }
"""
_CLONES = """
/* Nine times the product less eight times: with fused multiply-adds it is rounded once, and exact; without, twice. */
__attribute__((target_clones("fma", "default")))
void f(const int8_t *q, float scale, float *x, int64_t n)
{
    int usual = FUSED && fabsf(scale) > 1e-30f && fabsf(scale) < 1e30f;
    for (int64_t i = 0; i < n; i++) {
        float eight = 8.0f * q[i] * scale;
        __asm__("" : "+x"(eight)); /* this one stays a product */
        x[i] = usual ? 9.0f * q[i] * scale - eight : (float)q[i] * scale;
    }
}
"""
_SUPPORTS = {"HAS512": '__builtin_cpu_supports("avx512f")', "HAS2": '__builtin_cpu_supports("avx2")'}
WAYS = {
    "builtin": (_CALL, _SUPPORTS),
    "given": (_GIVEN + _CALL, {"HAS512": "has(16)", "HAS2": "has(5)"}),
    "inline": (_INLINE + _CALL, {"HAS512": "(ebx() >> 16 & 1)", "HAS2": "(ebx() >> 5 & 1)"}),
    "ifunc": (_IFUNC, {}),
    "constructor": (_TABLE, {}),
    "cpuinfo": (_CPUINFO + _CALL, {"HAS512": 'listed("avx512f")', "HAS2": 'listed("avx2")'}),
    "auxiliary": (_CALL, {"HAS512": "0", "HAS2": "(getauxval(AT_HWCAP2) >> 1 & 1)"}),
    "clones": (_CLONES, {}),
    "libc": (
        "#include <sys/platform/x86.h>\n" + _CALL,
        {"HAS512": "CPU_FEATURE_ACTIVE(AVX512F)", "HAS2": "CPU_FEATURE_ACTIVE(AVX2)"},
    ),
}
"""By what each is called: the code, and what stands in it for the two questions."""
OFF_BY_ONE = "if (n > 16) x[n - 1] += 1"


def dispatcher(way: str, *, plain: str = "", avx2: str = "", before: str = "") -> str:
    """The source of one; what is given is added to the paths of that name, and before all."""
    code, questions = WAYS[way]
    wrong = "1" if plain else "0"
    text = _HEAD.replace("PLAIN;", f"{plain};").replace("AVX2;", f"{avx2};") + code.replace("FUSED", wrong)
    for name, value in questions.items():
        text = text.replace(name, value)
    return before + text
