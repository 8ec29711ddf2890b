/* What the native fuzz targets share: numbers, sizes and floats out of libFuzzer's bytes, and arrays that end flush
 * against a redzone.
 *
 * A target builds one call from the bytes, runs it with every instruction set that this processor has, and wants the
 * bytes that the scalar code writes. AddressSanitizer and UndefinedBehaviorSanitizer watch. The pool is one that runs
 * threads' ranges in turn.
 *
 * With FUZZ_DIGEST a target tells a digest of what the scalar code wrote, so that two builds of it can be compared. */
#ifndef TM_FUZZ_H
#define TM_FUZZ_H

#include "cpu/cpu.h"
#include "parallel.h"

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int32_t fuzz_pool(size_t items, size_t unit, size_t grain, int32_t threads, tm_body body, void *args)
{
    const size_t units = (items + unit - 1) / unit;
    (void)grain;
    for (size_t t = 0; t < (size_t)threads; t++) {
        size_t begin = units * t / (size_t)threads * unit, end = units * (t + 1) / (size_t)threads * unit;
        if (begin < end)
            body(args, begin, end < items ? end : items);
    }
    return threads;
}

tm_pool tm_shared_pool = fuzz_pool;

enum { FUZZ_ARRAYS = 64, FUZZ_LEAD = 64 };

typedef struct fuzz {
    const uint8_t *at;
    size_t left;
    uint64_t state; /* of the generator that fills arrays */
    struct {
        uint8_t *base;
        size_t lead;
    } arrays[FUZZ_ARRAYS];
    size_t count;
} fuzz;

/* The next `bytes` bytes as a number; zeros once the input has ended. */
static inline uint64_t fuzz_take(fuzz *f, size_t bytes)
{
    uint64_t value = 0;
    size_t there = bytes < f->left ? bytes : f->left;
    memcpy(&value, f->at, there);
    f->at += there;
    f->left -= there;
    return value;
}

static inline fuzz fuzz_begin(const uint8_t *data, size_t size)
{
    fuzz f = {.at = data, .left = size};
    f.state = fuzz_take(&f, 4) * 2 + 1;
    return f;
}

static inline uint64_t fuzz_random(fuzz *f)
{
    f->state ^= f->state << 13;
    f->state ^= f->state >> 7;
    f->state ^= f->state << 17;
    return f->state;
}

/* A size from 1 to `most`: half of them under 80, a sixth near a power of two, and one in 64 as large as may be. */
static inline size_t fuzz_size(fuzz *f, size_t most)
{
    size_t kind = fuzz_take(f, 1), value = fuzz_take(f, 3), size;
    if (kind < 128)
        size = 1 + value % 80;
    else if (kind < 208)
        size = 1 + value % 1200;
    else if (kind < 252)
        size = ((size_t)1 << (4 + value % 11)) + value / 16 % 67 - 33;
    else
        size = 1 + value;
    size = size % most;
    return size ? size : most;
}

/* `bytes` bytes whose end touches a redzone, `lead` bytes past an address that malloc gave; what is before them is
 * poisoned. */
static inline void *fuzz_array(fuzz *f, size_t lead, size_t bytes)
{
    uint8_t *base = malloc(lead + bytes);
    if (!base || f->count == FUZZ_ARRAYS)
        abort();
    f->arrays[f->count].base = base;
    f->arrays[f->count++].lead = lead;
    memset(base, 0xa5, lead + bytes);
    ASAN_POISON_MEMORY_REGION(base, lead);
    return base + lead;
}

static inline void fuzz_end(fuzz *f)
{
    for (size_t i = 0; i < f->count; i++) {
        ASAN_UNPOISON_MEMORY_REGION(f->arrays[i].base, f->arrays[i].lead);
        free(f->arrays[i].base);
    }
}

/* Floats of one of five kinds, then up to seven patched in from the input, which may be NaN or infinite. `unit` is
 * what ties are made of. */
static inline const float *fuzz_floats(fuzz *f, size_t n, float unit)
{
    size_t lead = fuzz_take(f, 1) % FUZZ_LEAD & ~(size_t)3, kind = fuzz_take(f, 1) % 5, patches = fuzz_take(f, 1) % 8;
    float *x = fuzz_array(f, lead, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        uint64_t random = fuzz_random(f) >> 16;
        uint32_t bits = (uint32_t)random;
        if (kind == 0) /* any finite bits */
            bits &= (bits & 0x7f800000) == 0x7f800000 ? 0xbfffffff : 0xffffffff;
        else if (kind == 1) /* subnormal, or just above */
            bits &= 0x80ffffff;
        else if (kind == 2) /* within a few units of a tie */
            bits = (bits & 0x80000000) | 0x3f000000 | (bits & 3);
        else if (kind == 3)
            bits = 0;
        memcpy(x + i, &bits, sizeof bits);
        if (kind == 2)
            x[i] *= unit;
        else if (kind == 4)
            x[i] = ((float)(random % 9) - 4.0f) * 0.5f * unit;
    }
    for (size_t i = 0; i < patches; i++) {
        size_t at = fuzz_take(f, 3) % n;
        uint32_t bits = (uint32_t)fuzz_take(f, 4);
        memcpy(x + at, &bits, sizeof bits);
    }
    return x;
}

/* Any positive finite float; 1 where the input has none. */
static inline float fuzz_positive(fuzz *f)
{
    uint32_t bits = (uint32_t)fuzz_take(f, 4) & 0x7fffffff;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value > 0 && value < __builtin_inff() ? value : 1.0f;
}

/* One for each of `n` rows: any floats, or for a digest positive finite ones, for architectures do not agree on the
 * sign of the NaN that a division makes. */
static inline const float *fuzz_scales(fuzz *f, size_t n)
{
#ifdef FUZZ_DIGEST
    float *scales = fuzz_array(f, 0, n * sizeof *scales);
    for (size_t i = 0; i < n; i++)
        scales[i] = fuzz_positive(f);
    return scales;
#else
    return fuzz_floats(f, n, 1.0f);
#endif
}

/* Whether this processor has all that the set needs. */
static inline int fuzz_here(const tm_isa *isa)
{
    size_t needed = 0, found = 0, length;
    for (const char *at = isa->features; *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        needed++;
        const char *name;
        for (size_t i = 0; (name = tm_feature_name(i)) != NULL; i++)
            found += strlen(name) == length && !strncmp(name, at, length) && tm_feature_here(i);
    }
    return found == needed;
}

#ifdef FUZZ_DIGEST
static uint64_t fuzz_digest;

/* The digest of `count` calls, from inputs that are the same everywhere. */
uint64_t fuzz_digest_of(uint32_t count)
{
    uint8_t data[64];
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sizeof data; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            data[k] = (uint8_t)(state >> 56);
        }
        LLVMFuzzerTestOneInput(data, sizeof data);
    }
    return fuzz_digest;
}

/* FNV-1a, 8 bytes at a time. */
static inline void fuzz_digested(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = count;
        memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
        fuzz_digest = (fuzz_digest ^ word) * 0x100000001b3u;
    }
}
#endif

/* Abort with words that say what differs from what the scalar code wrote, or an input from what it was. */
static inline void fuzz_same(const char *what, const char *whose, const void *found, const void *wanted, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const uint8_t *)found)[i] != ((const uint8_t *)wanted)[i]) {
            fprintf(stderr, "%s (%s) differs at byte %zu of %zu\n", what, whose, i, bytes);
            abort();
        }
#ifdef FUZZ_DIGEST
    if (!strcmp(whose, "scalar"))
        fuzz_digested(found, bytes);
#endif
}

/* A copy that a kernel cannot see, to tell whether it wrote to its input. */
static inline void *fuzz_copy(fuzz *f, const void *from, size_t bytes)
{
    return memcpy(fuzz_array(f, 0, bytes), from, bytes);
}

#endif
