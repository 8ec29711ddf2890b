/* ternary_matmul with AVX-512 VNNI.
 *
 * A byte w holds codes c0 + 4 c1 + 16 c2 + 64 c3 of four rows. Instead of shifting each out, the nested masks w & 3, w
 * & 15, w & 63 and w go into four vpdpbusd, and the rows' sums are the differences, taken once a chunk: A0 = U0, A1 =
 * (U1 - U0) / 4, A2 = (U2 - U1) / 16, A3 = (U3 - U2) / 64. Sums may wrap modulo 2^32; a difference is exact while |64 *
 * A3| < 2^31, and |A3| <= 2 * 128 * 4 * groups, so while groups <= 32767: TM_MATMUL_CHUNK is 8192.
 *
 * For each 64 bytes: 1 load, 3 ands, and for each row of activations 1 broadcast and 4 vpdpbusd. Ands go to the ports
 * of vpdpbusd on Intel, so six rows can reach 24/27 of its peak, four 16/19. One row of activations needs two sets of sums
 * to hide vpdpbusd's latency (4 to 5 cycles). The loops around are in tiles.h, with their own story.
 *
 * What stands here is what `tritmark run --suite speed` measures; the versions before it are gone, and their figures were
 * taken when they stood here.
 *
 * Story (GOP/s of one thread, hot, at 2560 x 2560, M = 60; share of a read of the same bytes from memory, two threads,
 * 2560 x 6912, M = 1):
 *   v1  nested masks, six rows at once, prefetch 4 KiB ahead into L2    Zen 4  242  0.66   Intel Xeon  450  0.91
 *       GCC 12 spills the sums in every step.
 *   v2  four rows at once: nothing spills, vpdpbusd is the limit        Zen 4  443  0.66   Intel Xeon  777  0.91
 *   v3  no prefetch on AMD, 8 KiB on Intel (ternary_matmul.h)           Zen 4  443  0.93   Intel Xeon  777  0.92
 *   v4  six rows at once: vpdpbusd in assembly and masks in memory, so that 24 sums, 4 weights and 1 broadcast fit;
 *       objdump shows no vector on the stack in any loop. Share of vpdpbusd's peak on an Intel Xeon, by turns, weights
 *       and activations in L2, M = 6: 0.49 with the intrinsic, which spills, 0.74 as it stands
 *
 * One row: for each 64 bytes 7 instructions on the two ports of vpdpbusd, so 3.5 cycles and 4/7 of its peak, whatever
 * the loads do: in L2 that is the limit (`python suites/performance/gemv.py --shapes 640x2560 --threads 1`). Story (time
 * over v4's by turns, hot, one thread, on an Intel Xeon while others kept it busy):
 *                                                                         64 x 64   200 x 310   333 x 111   640 x 2560
 *   v5  one settling of the sums, the last odd group with the others      0.97      0.96        0.94        1.01
 *   v6  vpdpbusd in assembly here too: 22 instructions for two groups
 *       in place of 38, of which 16 moved sums                            0.97      0.92        0.89        0.92
 *   v7  up to 24 rows are one slab without dividing (tiles.h)             0.79      0.88        0.87        0.93
 * On a quieter machine v4 took 7.9 us at 640 x 2560, which is 3.5 cycles at 2.85 GHz, so v6 has nothing to gain there:
 * moves need no port. They take room in front of them, which hyperthreads share. */
#include "tiles.h"

#if TM_X86
TM_BEGIN(avx512)

enum { ROWS = 6 }; /* of activations at once: with four sums each, 24 of the 32 registers */

static inline __m512i four(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return _mm512_set1_epi32(word);
}

static inline void settle(int32_t *acc, __m512i u0, __m512i u1, __m512i u2, __m512i u3)
{
    __m512i a_i32x16[4] = {
        u0,
        _mm512_srai_epi32(_mm512_sub_epi32(u1, u0), 2),
        _mm512_srai_epi32(_mm512_sub_epi32(u2, u1), 4),
        _mm512_srai_epi32(_mm512_sub_epi32(u3, u2), 6),
    };
    for (int g = 0; g < 4; g++)
        _mm512_store_si512(acc + 16 * g, _mm512_add_epi32(_mm512_load_si512(acc + 16 * g), a_i32x16[g]));
}

/* Compilers fold a load into each of its uses, or keep it twice; this makes it one, in a register. */
static inline __m512i kept(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* The intrinsic makes GCC 12 keep the sums twice, as lanes of int64 and of int32, and spill six rows of them. */
static inline __m512i dot(__m512i sum_i32x16, __m512i w_u8x64, __m512i a_i8x64)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum_i32x16) : "v"(w_u8x64), "v"(a_i8x64));
    return sum_i32x16;
}

/* The bits of w under a mask that stays in memory, for the sums leave no registers for masks. */
static inline __m512i masked(__m512i w, const int32_t *mask)
{
    __m512i v;
    __asm__("vpandd %2%{1to16%}, %1, %0" : "=v"(v) : "v"(w), "m"(*mask));
    return v;
}

/* `rows` is a constant at each call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void groups_by(
    const int rows, const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups,
    const int8_t *a, size_t lda, int32_t (*acc)[TM_TILE])
{
    static const int32_t masks[3] = {0x03030303, 0x0f0f0f0f, 0x3f3f3f3f};
    __m512i u[ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            u[r][g] = _mm512_setzero_si512();
    for (size_t k = 0; k < groups; k++) {
        const __m512i w = kept(_mm512_loadu_si512(tile + k * TM_TILE));
        const __m512i w0 = masked(w, masks), w1 = masked(w, masks + 1), w2 = masked(w, masks + 2);
        tm_prefetch_line(tile + k * TM_TILE, level, ahead);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i a_i8x64 = kept(four(a + (size_t)r * lda + 4 * k));
            u[r][0] = dot(u[r][0], w0, a_i8x64);
            u[r][1] = dot(u[r][1], w1, a_i8x64);
            u[r][2] = dot(u[r][2], w2, a_i8x64);
            u[r][3] = dot(u[r][3], w, a_i8x64);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
        settle(acc[r], u[r][0], u[r][1], u[r][2], u[r][3]);
}

/* One group of one row, added to the sums under its masks. */
static inline __attribute__((always_inline)) void one_group(
    const __m512i *masks, const uint8_t *bytes, const int8_t *a, __m512i *u)
{
    const __m512i w = _mm512_loadu_si512(bytes), a_i8x64 = four(a);
#pragma GCC unroll 3
    for (int g = 0; g < 3; g++)
        u[g] = dot(u[g], _mm512_and_si512(w, masks[g]), a_i8x64);
    u[3] = dot(u[3], w, a_i8x64);
}

static inline __attribute__((always_inline)) void one_row(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, int32_t *acc)
{
    const __m512i masks[3] = {_mm512_set1_epi8(3), _mm512_set1_epi8(15), _mm512_set1_epi8(63)};
    __m512i u[2][4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        u[i / 4][i % 4] = _mm512_setzero_si512();
    size_t k = 0;
    for (; k + 2 <= groups; k += 2) {
#pragma GCC unroll 2
        for (size_t s = 0; s < 2; s++) {
            tm_prefetch_line(tile + (k + s) * TM_TILE, level, ahead);
            one_group(masks, tile + (k + s) * TM_TILE, a + 4 * (k + s), u[s]);
        }
    }
    if (k < groups)
        one_group(masks, tile + k * TM_TILE, a + 4 * k, u[0]);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
        u[0][g] = _mm512_add_epi32(u[0][g], u[1][g]);
    settle(acc, u[0][0], u[0][1], u[0][2], u[0][3]);
}

static inline __attribute__((always_inline)) void micro_by(
    const enum tm_prefetch_level level, size_t ahead, const uint8_t *tile, size_t groups, const int8_t *a, size_t lda,
    int rows, int32_t (*acc)[TM_TILE])
{
    switch (rows) {
    case 1: one_row(level, ahead, tile, groups, a, acc[0]); break;
    case 2: groups_by(2, level, ahead, tile, groups, a, lda, acc); break;
    case 3: groups_by(3, level, ahead, tile, groups, a, lda, acc); break;
    case 4: groups_by(4, level, ahead, tile, groups, a, lda, acc); break;
    case 5: groups_by(5, level, ahead, tile, groups, a, lda, acc); break;
    default: groups_by(6, level, ahead, tile, groups, a, lda, acc); break;
    }
}

static void micro(const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    const tm_prefetch fetch = tm_weights_prefetch();
    switch (fetch.level) {
    case TM_PREFETCH_NONE: micro_by(TM_PREFETCH_NONE, 0, tile, groups, a, lda, rows, acc); break;
    case TM_PREFETCH_L1: micro_by(TM_PREFETCH_L1, fetch.bytes, tile, groups, a, lda, rows, acc); break;
    case TM_PREFETCH_L2: micro_by(TM_PREFETCH_L2, fetch.bytes, tile, groups, a, lda, rows, acc); break;
    }
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, ROWS, micro); }

int tm_ternary_matmul_avx512(void *args) { return tm_matmul_run(args, body, TM_RANK(avx512)); }

TM_END
#endif
