/* ternary_matmul, W2A8: acc[m][n] = sum over k of a[m][k] * w[n][k] in int32, w in {-1, 0, 1}; then acc itself, or acc
 * scaled to float.
 *
 * Weights come as tile64 (kernels/formats/tile64.py): tiles of 64 rows; for each group of 4 columns 64 bytes; byte 4*r
 * + kk holds, at bits 2*g, the code w + 1 of row 16*g + r, column kk of the group. So one 64-byte load meets one
 * broadcast of 4 activations, and a dot product of 4 unsigned with 4 signed bytes (vpdpbusd, or maddubs) leaves each
 * row's sum in its own lane. The code's offset of 1 is taken back at the end: sum(code * a) - sum(a).
 *
 * Bounds: |sum(code * a)| <= 2 * 128 * K, so int32 is exact for K < 2^23; TM_MATMUL_MAX_K keeps it there.
 *
 * Float output: (float)((double)acc * f) with f = (double)weight_scale / (double)act_scale, the same two roundings
 * on every path; bfloat16 rounds that float to nearest even. */
#ifndef TM_TERNARY_MATMUL_H
#define TM_TERNARY_MATMUL_H

#include "../prefetch.h"
#include "../parallel.h"

#include <string.h>

enum tm_matmul_out { TM_OUT_INT32, TM_OUT_FLOAT32, TM_OUT_BFLOAT16 };

enum {
    TM_TILE = 64,          /* rows of a tile; also bytes of a group */
    TM_MATMUL_BLOCK = 4,   /* most rows of activations that a micro kernel takes at once */
    TM_MATMUL_CHUNK = 8192, /* groups between two additions to the int32 sums, see avx512.c */
    TM_AMX_ROWS = 6,        /* fewest rows of activations that amx.c takes itself, */
    TM_AMX_PRODUCTS = 1 << 19, /* and fewest products; for each thread, of fewer rows than its tiles have */
    TM_AMX_COLUMNS = 1 << 15,   /* longest rows of weights that it brings into tile64 from another format */
    TM_AMX_WORK = 33192,    /* bytes of a thread's stack that it then works in, beside those weights */
    TM_AMX_STRETCH = 3 << 17, /* bytes of weights that a block of rows passes before the next block does, */
    TM_AMX_LEAST_TILES = 4,   /* which are so many tiles at least, or one, */
    TM_AMX_MOST_TILES = 8,    /* and at most */
    TM_AMX_PANEL_WORK = 49536, /* bytes of its stack that it then works in, beside codes and scales */
    TM_AMX_TOTALS = 64, /* most rows whose totals it keeps at once, of weights with a scale for each group */
    TM_AMX_SLAB = 256,      /* most rows of activations between two of its walks over the weights */
    TM_AMX_PACKED = 1 << 20 /* most bytes of activations that it packs at once, half of L2 */
};

typedef struct tm_ternary_matmul_args {
    tm_run run;
    const int8_t *a;
    const uint8_t *weights; /* the bytes of the table's format */
    const float *act_scale; /* one a row of activations; NULL for int32 output */
    void *out;              /* M x N, rows contiguous */
    size_t lda;             /* bytes between rows of a */
    size_t M, N, K;
    /* room for one a row of activations and group of weights, where groups have scales, and for what the format's
     * kernels put behind them (formats.h says how much); else NULL */
    int32_t *act_sums;
    float weight_scale;
    int32_t kind; /* enum tm_matmul_out */
    uint8_t *tables; /* room for look-up tables of the activations, at a cache line, in formats of such; else NULL */
    size_t BM, BK, bm; /* rows and columns of a tile of weights, and rows side by side in it; 0 where there are none */
} tm_ternary_matmul_args;

TM_KERNELS(ternary_matmul);

/* sum(code * a) of `groups` groups of one tile and `rows` rows of activations, added to acc[row][64]: those of the first
 * `there` rows of the tile at least, which are what the last tile has. */
typedef void (*tm_micro)(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE]);

static inline uint16_t tm_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* How far ahead weights are fetched, which may come from memory, unless told otherwise. Share of a plain read of the same
 * bytes, huge pages, that M = 1 reached with one / two threads (AVX-512, 2560 x 6912, tile64):
 *                              none          8 KiB into L2   4 KiB into L2   4 KiB into L1
 *   AMD Zen 4                  0.96 / 0.93   0.74 / 0.72     0.69 / 0.66     0.95 / 0.90
 *   Intel Xeon, 2 MiB L2       0.60 / 0.59   0.93 / 0.92     0.91 / 0.91     0.84 / 0.84
 * So on Intel's cores: there the hardware's own prefetcher does not keep up with one stream, and L1 has too few fill
 * buffers. And on Zen 3, whose AVX2 kernels do more for a line. There the time over that without, two threads, by `tritmark
 * tune cpu`, from memory / in the caches:
 *                              2 KiB into L1   4 KiB into L1   2 KiB into L2   8 KiB into L2
 *   AMD Zen 3                  0.81 / 0.94     0.82 / 0.94     0.82 / 0.98     0.83 / 0.98
 *
 * On Zen 4 it is another strategy for each format. Time over that without, M = 1, one and two threads, 2560 x 2560, 6912 x
 * 2560 and 2560 x 6912, from memory (`python suites/performance/prefetching.py`; AVX2 with TRITMARK_FORCE_ISA=avx2):
 *                       512 B into L1   2 KiB into L1   8 KiB into L2
 *   tile64     AVX-512  1.00 to 1.02    1.00 to 1.11    1.05 to 1.36
 *              AVX2     0.97 to 0.99    0.99 to 1.05    0.94 to 1.01
 *   tile80     AVX-512  0.96 to 1.00    0.96 to 1.00    0.92 to 1.03
 *              AVX2     1.02 to 1.07    0.95 to 1.00    0.93 to 1.00
 *   i2_s_x86   AVX-512  0.22 to 0.50    0.21 to 0.49    0.24 to 0.52
 *              AVX2     0.27 to 0.38    0.27 to 0.37    0.28 to 0.40
 *     1536 x   AVX-512  1.35 to 1.62    1.30 to 1.51    0.61 to 0.72
 *      13824   AVX2     0.48 to 0.58    0.47 to 0.57    0.35 to 0.47
 *   tq2_0      AVX-512  0.31 to 0.57    0.30 to 0.56    0.58 to 0.67
 *              AVX2     1.01 to 1.05    0.99 to 1.02    1.61 to 1.91
 *   iq2_bn_r4  AVX-512  0.99 to 1.12    1.01 to 1.12    1.04 to 1.27
 *   q2_0       AVX-512  0.34 to 0.54    0.34 to 0.53    0.81 to 0.82
 *   tq1_0      AVX-512  0.41 to 0.59    0.41 to 0.59    0.70 to 0.83
 * In the caches 512 bytes are 0.97 to 1.03 with tile64, 8 KiB 0.95 to 1.02 with tile80. i2_s_x86, and with AVX-512 tq2_0,
 * q2_0 and tq1_0, read two or four rows side by side, of which the hardware sees nothing, in the caches either: there 2 KiB are
 * 0.58 to 0.99. i2_s_x86 row after row takes up to three times as long without; tq2_0 with AVX2, which reads as much of the
 * activations for a line of weights, takes longer with it. Why was not found. */
static inline tm_prefetch tm_weights_prefetch_by(tm_prefetch elsewhere, int tiles)
{
#if TM_X86
    if (__builtin_cpu_is("intel"))
        return tm_prefetch_now((tm_prefetch){TM_PREFETCH_L2, 8192}, tiles);
#if defined(__clang__) || __GNUC__ >= 11 /* older ones do not know the name */
    if (__builtin_cpu_is("znver3") && !__builtin_cpu_supports("avx512f")) /* GCC 12 takes Zen 4 for it */
        return tm_prefetch_now((tm_prefetch){TM_PREFETCH_L1, 2048}, tiles);
#endif
#endif
    return tm_prefetch_now(elsewhere, tiles);
}

static inline tm_prefetch tm_tiles_prefetch(void)
{
    return tm_weights_prefetch_by((tm_prefetch){TM_PREFETCH_L1, 512}, 1);
}

/* Of other formats. */
static inline tm_prefetch tm_weights_prefetch(tm_prefetch elsewhere) { return tm_weights_prefetch_by(elsewhere, 0); }

static const tm_prefetch tm_weights_far = {TM_PREFETCH_L2, 8192}, tm_weights_near = {TM_PREFETCH_L1, 2048},
                         tm_weights_plain = {TM_PREFETCH_NONE, 0};

/* What float outputs of row `m` of the activations are their sums times. */
static inline double tm_matmul_factor(const tm_ternary_matmul_args *args, size_t m)
{
    return args->kind == TM_OUT_INT32 ? 0 : (double)args->weight_scale / (double)args->act_scale[m];
}

/* Write one row of a tile's sums: `count` of them, from row `n` of the weights on. */
static inline void tm_matmul_store_by(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const int32_t *acc, int32_t act_sum,
    double factor)
{
    size_t at = m * args->N + n;
    if (args->kind == TM_OUT_INT32) {
        int32_t *out = (int32_t *)args->out + at;
        for (size_t i = 0; i < count; i++)
            out[i] = acc[i] - act_sum;
        return;
    }
    if (args->kind == TM_OUT_FLOAT32) {
        float *out = (float *)args->out + at;
        for (size_t i = 0; i < count; i++)
            out[i] = (float)((double)(acc[i] - act_sum) * factor);
        return;
    }
    uint16_t *out = (uint16_t *)args->out + at;
    for (size_t i = 0; i < count; i++)
        out[i] = tm_bfloat16((float)((double)(acc[i] - act_sum) * factor));
}

static inline void tm_matmul_store(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const int32_t *acc, int32_t act_sum)
{
    tm_matmul_store_by(args, m, n, count, acc, act_sum, tm_matmul_factor(args, m));
}

/* Whether amx.c multiplies by tiles, or leaves it to AVX-512. `arranged`: weights of another format than tile64. */
static inline int tm_amx_takes(size_t M, size_t N, size_t K, size_t threads, int arranged)
{
    if (arranged && K > TM_AMX_COLUMNS)
        return 0;
    return M >= TM_AMX_ROWS && M * N >= (TM_AMX_PRODUCTS * (M < 16 ? threads : 1) + K - 1) / K;
}

/* Bytes of a tile of weights, and tiles of a stretch. */
static inline size_t tm_amx_tile_bytes(size_t K) { return (K + 3) / 4 * TM_TILE; }
static inline size_t tm_amx_stretch_tiles(size_t K)
{
    const size_t fit = TM_AMX_STRETCH / tm_amx_tile_bytes(K);
    return fit < TM_AMX_LEAST_TILES ? 1 : fit < TM_AMX_MOST_TILES ? fit : TM_AMX_MOST_TILES;
}

/* Bytes of its stack that a thread works in. */
static inline size_t tm_amx_stack(size_t K, int arranged)
{
    return TM_AMX_WORK + (arranged ? tm_amx_stretch_tiles(K) * tm_amx_tile_bytes(K) : 0);
}

/* Bytes of 32 rows of weights with a scale for each group, decoded: of all columns, or of 256 where few rows of activations
 * meet them. */
static inline size_t tm_amx_codes(size_t M, size_t K) { return 32 * (M > TM_AMX_TOTALS ? (K + 255) / 256 * 256 : 256); }

/* Bytes of its stack that a thread works in where groups of that many weights have a scale. */
static inline size_t tm_amx_panel_stack(size_t M, size_t K, size_t weights)
{
    return TM_AMX_PANEL_WORK + tm_amx_codes(M, K) + K / weights * 32 * sizeof(double);
}

/* Bytes of M rows of activations that the AMX kernel packs: tiles of 16 rows by 64 columns. */
static inline size_t tm_amx_packed_bytes(size_t M, size_t K) { return (M + 15) / 16 * 16 * ((K + 63) / 64 * 64); }

/* Rows that it packs at once, in blocks of 32, on the stack of its caller: 0 where they are too long. */
static inline size_t tm_amx_packed_rows(size_t K)
{
    const size_t fit = TM_AMX_PACKED / tm_amx_packed_bytes(32, K) * 32;
    return fit < TM_AMX_SLAB ? fit : TM_AMX_SLAB;
}

/* Most bytes of that stack that it takes for M rows: packed ones, or the last columns of rows in place. */
static inline size_t tm_amx_room(size_t M, size_t K)
{
    const size_t packed = tm_amx_packed_rows(K), least = TM_AMX_SLAB * 64;
    const size_t bytes = tm_amx_packed_bytes(M < packed ? M : packed, K);
    return bytes > least ? bytes : least;
}

static inline int32_t tm_sum(const int8_t *a, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

/* How many units of `work` products each make a thread worth waking: about 8 us, 2^19 products on the slowest path that
 * matters. */
static inline size_t tm_matmul_grain(size_t work)
{
    const size_t grain = ((size_t)1 << 19) / (work ? work : 1);
    return grain ? grain : 1;
}

/* `body` over all weights, in units of `unit` rows. */
static inline int tm_matmul_run_by(tm_ternary_matmul_args *args, size_t unit, tm_body body, int32_t rank)
{
    const size_t units = (args->N + unit - 1) / unit;
    args->run.used = tm_parallel(units, 1, tm_matmul_grain(unit * args->K * args->M), args->run.threads, body, args);
    return tm_finish(&args->run, rank);
}

#endif
