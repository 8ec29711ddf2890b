/* How far ahead, and into which cache, a kernel prefetches a stream that may come from memory: the setting, or else the
 * kernel's default. There is one setting for all kernels of an extension module, which the module's boundary changes. A
 * kernel reads it in each call. It changes no bit of any result.
 *
 * A kernel compiles its loop for each level, so a loop without prefetch has no instruction for it; the distance stays
 * in a register. Lines past the end of an array are prefetched too, which does no harm. Page:
 * docs/kernels/prefetch.md. */
#ifndef TM_PREFETCH_H
#define TM_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    TM_PREFETCH_BUILTIN = -1, /* no distance: the kernel's default */
    TM_PREFETCH_LINE = 64, /* distances are multiples of it */
    TM_PREFETCH_MOST = 65536,
    TM_PREFETCH_TILES = 4
};

enum tm_prefetch_level { TM_PREFETCH_NONE, TM_PREFETCH_L1, TM_PREFETCH_L2 };

typedef struct tm_prefetch {
    enum tm_prefetch_level level;
    uint32_t bytes; /* ahead */
} tm_prefetch;

/* The setting in one number: a distance, a level, and TM_PREFETCH_TILES if it is for weights in tile64 only; or
 * TM_PREFETCH_BUILTIN. Each module has its own copy: the linker merges those of its files. */
__attribute__((weak, visibility("hidden"))) int32_t tm_prefetch_told = TM_PREFETCH_BUILTIN;

/* Returns 0, or -1 for an invalid level or distance; both are 0 for no prefetch. */
static inline int tm_prefetch_tell(int32_t level, int32_t bytes, int tiles_alone)
{
    const int fetches = level == TM_PREFETCH_L1 || level == TM_PREFETCH_L2;
    if (!fetches && (level != TM_PREFETCH_NONE || bytes))
        return -1;
    if (fetches && (bytes < TM_PREFETCH_LINE || bytes > TM_PREFETCH_MOST || bytes % TM_PREFETCH_LINE))
        return -1;
    __atomic_store_n(&tm_prefetch_told, bytes | level | (tiles_alone ? TM_PREFETCH_TILES : 0), __ATOMIC_RELAXED);
    return 0;
}

static inline void tm_prefetch_reset(void)
{
    __atomic_store_n(&tm_prefetch_told, TM_PREFETCH_BUILTIN, __ATOMIC_RELAXED);
}

static inline tm_prefetch tm_prefetch_now(tm_prefetch builtin, int tiles)
{
    const int32_t told = __atomic_load_n(&tm_prefetch_told, __ATOMIC_RELAXED);
    if (told == TM_PREFETCH_BUILTIN || (told & TM_PREFETCH_TILES && !tiles))
        return builtin;
    return (tm_prefetch){
        (enum tm_prefetch_level)(told % TM_PREFETCH_TILES), (uint32_t)(told / TM_PREFETCH_LINE * TM_PREFETCH_LINE)};
}

/* Prefetches the line `ahead` bytes further; `level` is a constant at each call. */
static inline __attribute__((always_inline)) void tm_prefetch_line(
    const void *bytes, const enum tm_prefetch_level level, size_t ahead)
{
    if (level == TM_PREFETCH_L1)
        __builtin_prefetch((const void *)((uintptr_t)bytes + ahead), 0, 3);
    else if (level == TM_PREFETCH_L2)
        __builtin_prefetch((const void *)((uintptr_t)bytes + ahead), 0, 2);
}

/* Runs `call`, which uses `level` and `ahead`, with the setting `fetch`. `level` is a constant in it, so what is
 * inlined there is compiled for each level. */
#define TM_PREFETCHED(fetch, call) \
    do { \
        const tm_prefetch told_ = (fetch); \
        switch (told_.level) { \
        case TM_PREFETCH_NONE: TM_PREFETCHED_AT(TM_PREFETCH_NONE, 0, call); break; \
        case TM_PREFETCH_L1: TM_PREFETCHED_AT(TM_PREFETCH_L1, told_.bytes, call); break; \
        case TM_PREFETCH_L2: TM_PREFETCHED_AT(TM_PREFETCH_L2, told_.bytes, call); break; \
        } \
    } while (0)
#define TM_PREFETCHED_AT(constant, distance, call) \
    do { \
        const enum tm_prefetch_level level = constant; \
        const size_t ahead = distance; \
        call; \
    } while (0)

/* Prefetches the lines of `count` bytes, for a loop that takes that many at a time. */
static inline __attribute__((always_inline)) void tm_prefetch_lines(
    const uint8_t *bytes, size_t count, const enum tm_prefetch_level level, size_t ahead)
{
    for (size_t i = 0; i < count; i += TM_PREFETCH_LINE)
        tm_prefetch_line(bytes + i, level, ahead);
}

#endif
