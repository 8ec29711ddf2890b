/* The tile registers of AMX: eight of up to 16 rows of 64 bytes for each thread. In assembly, because the intrinsics of
 * GCC 12 do not declare that they read memory.
 *
 * With TM_TILES_EMULATED they are C, for tests on processors without AMX: they do what the instructions do, and abort
 * where these would raise an exception. */
#ifndef TM_AMX_TILES_H
#define TM_AMX_TILES_H

#include "isa.h"

#if TM_X86
#include <sys/syscall.h>
#include <unistd.h>

enum { TM_TILE_ROWS = 16, TM_TILE_BYTES = 64, TM_TILE_REGISTERS = 8 };

/* What ldtilecfg reads. */
typedef struct tm_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of each row */
    uint8_t rows[16];
} tm_tile_config;

#if defined(TM_TILES_EMULATED)
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    tm_tile_config config;
    uint8_t tile[TM_TILE_REGISTERS][TM_TILE_ROWS][TM_TILE_BYTES];
} tm_tiles;

static inline int tm_tiles_permitted(void) { return 1; }

static inline void tm_tile_demand(int holds)
{
    if (!holds)
        abort();
}

static inline void tm_tile_configure(const tm_tile_config *config)
{
    tm_tile_demand(config->palette == 1 && config->start_row == 0);
    for (int i = 0; i < 16; i++) {
        tm_tile_demand(config->rows[i] <= TM_TILE_ROWS && config->bytes[i] <= TM_TILE_BYTES);
        tm_tile_demand(i < TM_TILE_REGISTERS || (!config->rows[i] && !config->bytes[i]));
        tm_tile_demand(!config->rows[i] == !config->bytes[i]);
    }
    tm_tiles.config = *config;
    memset(tm_tiles.tile, 0, sizeof tm_tiles.tile);
}

static inline void tm_tile_release(void) { memset(&tm_tiles, 0, sizeof tm_tiles); }

static inline void tm_tile_zero(int t)
{
    tm_tile_demand(tm_tiles.config.rows[t]);
    memset(tm_tiles.tile[t], 0, sizeof tm_tiles.tile[t]);
}

static inline void tm_tile_load(int t, const void *from, size_t stride)
{
    tm_tile_zero(t);
    for (size_t row = 0; row < tm_tiles.config.rows[t]; row++)
        memcpy(tm_tiles.tile[t][row], (const uint8_t *)from + row * stride, tm_tiles.config.bytes[t]);
}

static inline void tm_tile_load_once(int t, const void *from, size_t stride) { tm_tile_load(t, from, stride); }

static inline void tm_tile_store(int t, void *to, size_t stride)
{
    tm_tile_demand(tm_tiles.config.rows[t]);
    for (size_t row = 0; row < tm_tiles.config.rows[t]; row++)
        memcpy((uint8_t *)to + row * stride, tm_tiles.tile[t][row], tm_tiles.config.bytes[t]);
}

/* Always optimized, because tests spend much of their time here. */
static __attribute__((unused, optimize("O3"), target("avx2"))) void tm_tile_multiply_by(
    int c, int a, int b, int is_signed)
{
    const tm_tile_config *of = &tm_tiles.config;
    tm_tile_demand(c != a && a != b && b != c && of->palette && of->rows[c] && of->rows[a] && of->rows[b]);
    tm_tile_demand(of->rows[c] == of->rows[a] && of->bytes[c] == of->bytes[b] && of->bytes[a] == 4 * of->rows[b]);
    for (int m = 0; m < of->rows[c]; m++) {
        uint32_t sums[TM_TILE_BYTES / 4];
        memcpy(sums, tm_tiles.tile[c][m], sizeof sums);
        for (int row = 0; row < of->rows[b]; row++) {
            const int8_t *four = (const int8_t *)tm_tiles.tile[a][m] + 4 * row;
            const uint8_t *others = tm_tiles.tile[b][row];
            for (int n = 0; n < of->bytes[c] / 4; n++)
                for (int k = 0; k < 4; k++) {
                    const uint8_t other = others[4 * n + k];
                    sums[n] += (uint32_t)(four[k] * (is_signed ? (int8_t)other : other));
                }
        }
        memcpy(tm_tiles.tile[c][m], sums, of->bytes[c]);
    }
}

/* c += a * b modulo 2^32: signed bytes of a, unsigned ones of b. */
static inline void tm_tile_multiply(int c, int a, int b) { tm_tile_multiply_by(c, a, b, 0); }

/* The same, with signed bytes of b. */
static inline void tm_tile_multiply_signed(int c, int a, int b) { tm_tile_multiply_by(c, a, b, 1); }

#else

/* Whether the system lets this process use tiles: Linux saves their 8 KiB only for processes that request it. The
 * permission holds for all threads and children, and a second request does no harm. */
static inline int tm_tiles_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static inline void tm_tile_configure(const tm_tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

static inline void tm_tile_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }

/* The instruction names its registers, so these are macros with constants. */
#define tm_tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define tm_tile_load_by(name, t, from, stride) \
    __asm__ volatile(name " (%0,%1,1), %%tmm" #t : : "r"((const void *)(from)), "r"((size_t)(stride)) : "memory")
#define tm_tile_load(t, from, stride) tm_tile_load_by("tileloadd", t, from, stride)
/* With the hint that L1 need not keep the loaded lines. */
#define tm_tile_load_once(t, from, stride) tm_tile_load_by("tileloaddt1", t, from, stride)
#define tm_tile_store(t, to, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"((void *)(to)), "r"((size_t)(stride)) : "memory")
#define tm_tile_multiply(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define tm_tile_multiply_signed(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif

/* For a process that has not queried its features: requests the permission. If it is refused, the instruction set is
 * not available, and tiles would end the process with an illegal instruction. */
static inline void tm_tiles_asked(void)
{
    static int asked;
    if (!__atomic_load_n(&asked, __ATOMIC_RELAXED)) {
        tm_tiles_permitted();
        __atomic_store_n(&asked, 1, __ATOMIC_RELAXED);
    }
}
#endif
#endif
