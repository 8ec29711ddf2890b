/* ternary_matmul, W2A8: acc[m][n] = sum over k of a[m][k] * w[n][k] in int32, w in {-1, 0, 1}. The output is acc, or
 * acc scaled to float.
 *
 * Layout, tile64 (kernels/formats/tile64.py): tiles of 64 rows, 64 bytes for each group of 4 columns. Byte 4*r + kk
 * holds, at bits 2*g, the code w + 1 of row 16*g + r, column kk of the group. So one 64-byte load meets one broadcast
 * of 4 activations, and a dot product of 4 unsigned with 4 signed bytes (vpdpbusd, or maddubs) leaves each row's sum in
 * its own lane. The code's offset of 1 is subtracted at the end: sum(code * a) - sum(a).
 *
 * Bounds: |sum(code * a)| <= 2 * 128 * K, so int32 is exact for K < 2^23; TM_MATMUL_MAX_K keeps it there.
 *
 * Float output: (float)((double)acc * f) with f = (double)weight_scale / (double)act_scale, the same two roundings on
 * every path; bfloat16 rounds that float to nearest even. */
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
    TM_AMX_ROWS = 6,        /* fewest rows of activations that amx.c multiplies */
    TM_AMX_PRODUCTS = 1 << 19, /* fewest products; for each thread, if a tile of activations is not full */
    TM_AMX_COLUMNS = 1 << 15,   /* longest rows of weights that amx.c converts to tile64 */
    TM_AMX_WORK = 33192,    /* bytes of stack that a thread works in, without converted weights */
    TM_AMX_STRETCH = 3 << 17, /* bytes of weights that a block of rows passes before the next block does */
    TM_AMX_LEAST_TILES = 4,   /* fewest tiles of such a stretch, if not one */
    TM_AMX_MOST_TILES = 8,    /* most tiles of it */
    TM_AMX_PANEL_WORK = 49536, /* bytes of stack that a thread works in with panels, without codes and scales */
    TM_AMX_TOTALS = 64, /* most rows of activations whose totals are kept at once, with panels */
    TM_AMX_SLAB = 256,      /* most rows of activations between two walks over the weights */
    TM_AMX_PACKED = 1 << 20 /* most bytes of activations packed at once: half of L2 */
};

typedef struct tm_ternary_matmul_args {
    tm_run run;
    const int8_t *a;
    const uint8_t *weights; /* in the bytes of the table's format */
    const float *act_scale; /* one for each row of activations; NULL for int32 output */
    void *out;              /* M x N, rows contiguous, out_gap apart */
    size_t lda;             /* bytes between rows of a */
    size_t M, N, K;
    /* Formats with a scale for each group: room for one sum for each row of activations and group, and for what the
     * format's kernels put behind them (see tm_matmul_format.room). Other formats: NULL. */
    int32_t *act_sums;
    float weight_scale;
    int32_t kind; /* enum tm_matmul_out */
    uint8_t *tables; /* formats with look-up: room for tables of the activations, aligned to 64 bytes; else NULL */
    size_t group; /* formats with a scale for each group: weights of a row that share one; else 0 */
    size_t BM, BK, bm; /* formats in tiles: rows and columns of a tile of weights, rows side by side in it; else 0 */
    /* For a part of a product (ternary_matmul_experts/experts.h), else 0: */
    size_t out_gap; /* elements of out between the end of a row and the start of the next */
    int32_t begun;  /* act_sums hold what a call with N = 0 wrote there */
} tm_ternary_matmul_args;

TM_KERNELS(ternary_matmul);

/* Adds sum(code * a) of `groups` groups of one tile and `rows` rows of activations to acc[row][64]. `there`: how many
 * rows of weights the tile has; sums of the others may be left out. */
typedef void (*tm_micro)(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE]);

static inline uint16_t tm_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* How far ahead weights are prefetched, unless a setting overrides it. Intel's cores need it, because the hardware does
 * not keep up with one stream; so does Zen 3. On other processors it is `elsewhere`, the best for a format on Zen 4.
 * Measurements: docs/kernels/prefetch.md. */
static inline tm_prefetch tm_weights_prefetch_by(tm_prefetch elsewhere, int tiles)
{
#if TM_X86
    if (__builtin_cpu_is("intel"))
        return tm_prefetch_now((tm_prefetch){TM_PREFETCH_L2, 8192}, tiles);
#if defined(__clang__) || __GNUC__ >= 11 /* older compilers do not know the name */
    if (__builtin_cpu_is("znver3") && !__builtin_cpu_supports("avx512f")) /* GCC 12 reports Zen 4 as Zen 3 */
        return tm_prefetch_now((tm_prefetch){TM_PREFETCH_L1, 2048}, tiles);
#endif
#endif
    return tm_prefetch_now(elsewhere, tiles);
}

static inline tm_prefetch tm_tiles_prefetch(void)
{
    return tm_weights_prefetch_by((tm_prefetch){TM_PREFETCH_L1, 512}, 1);
}

/* The same for other formats. */
static inline tm_prefetch tm_weights_prefetch(tm_prefetch elsewhere) { return tm_weights_prefetch_by(elsewhere, 0); }

static const tm_prefetch tm_weights_far = {TM_PREFETCH_L2, 8192}, tm_weights_near = {TM_PREFETCH_L1, 2048},
                         tm_weights_plain = {TM_PREFETCH_NONE, 0};

/* Where column `n` of row `m` is in the output, in elements. */
static inline size_t tm_matmul_at(const tm_ternary_matmul_args *args, size_t m, size_t n)
{
    return m * (args->N + args->out_gap) + n;
}

/* The factor from sums to float outputs, for row `m` of the activations. */
static inline double tm_matmul_factor(const tm_ternary_matmul_args *args, size_t m)
{
    return args->kind == TM_OUT_INT32 ? 0 : (double)args->weight_scale / (double)args->act_scale[m];
}

/* Writes one row of a tile's sums: `count` of them, from row `n` of the weights. */
static inline void tm_matmul_store_by(
    const tm_ternary_matmul_args *args, size_t m, size_t n, size_t count, const int32_t *acc, int32_t act_sum,
    double factor)
{
    const size_t at = tm_matmul_at(args, m, n);
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

/* Whether amx.c runs this product with tiles, or leaves it to AVX-512. `arranged`: weights are converted to tile64. */
static inline int tm_amx_takes(size_t M, size_t N, size_t K, size_t threads, int arranged)
{
    if (arranged && K > TM_AMX_COLUMNS)
        return 0;
    return M >= TM_AMX_ROWS && M * N >= (TM_AMX_PRODUCTS * (M < 16 ? threads : 1) + K - 1) / K;
}

/* Bytes of a tile of weights; tiles of a stretch. */
static inline size_t tm_amx_tile_bytes(size_t K) { return (K + 3) / 4 * TM_TILE; }
static inline size_t tm_amx_stretch_tiles(size_t K)
{
    const size_t fit = TM_AMX_STRETCH / tm_amx_tile_bytes(K);
    return fit < TM_AMX_LEAST_TILES ? 1 : fit < TM_AMX_MOST_TILES ? fit : TM_AMX_MOST_TILES;
}

/* Bytes of stack that a thread works in. */
static inline size_t tm_amx_stack(size_t K, int arranged)
{
    return TM_AMX_WORK + (arranged ? tm_amx_stretch_tiles(K) * tm_amx_tile_bytes(K) : 0);
}

/* Bytes of the decoded codes of 32 rows of weights with a scale for each group: of all columns, or of 256 for few rows
 * of activations. */
static inline size_t tm_amx_codes(size_t M, size_t K) { return 32 * (M > TM_AMX_TOTALS ? (K + 255) / 256 * 256 : 256); }

/* Bytes of stack that a thread works in; `weights`: weights that share a scale. */
static inline size_t tm_amx_panel_stack(size_t M, size_t K, size_t weights)
{
    return TM_AMX_PANEL_WORK + tm_amx_codes(M, K) + K / weights * 32 * sizeof(double);
}

/* Bytes of M rows of activations that the AMX kernel packs: tiles of 16 rows by 64 columns. */
static inline size_t tm_amx_packed_bytes(size_t M, size_t K) { return (M + 15) / 16 * 16 * ((K + 63) / 64 * 64); }

/* Rows that are packed at once, in blocks of 32, on the caller's stack; 0 if they are too long. */
static inline size_t tm_amx_packed_rows(size_t K)
{
    const size_t fit = TM_AMX_PACKED / tm_amx_packed_bytes(32, K) * 32;
    return fit < TM_AMX_SLAB ? fit : TM_AMX_SLAB;
}

/* Most bytes of that stack for M rows: packed rows, or the last columns of rows in place. */
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

/* How many units of `work` products each justify waking a thread: about 8 us, 2^19 products on the slowest path that
 * matters. */
static inline size_t tm_matmul_grain(size_t work)
{
    const size_t grain = ((size_t)1 << 19) / (work ? work : 1);
    return grain ? grain : 1;
}

/* Runs `body` over all weights, in units of `unit` rows. */
static inline int tm_matmul_run_by(tm_ternary_matmul_args *args, size_t unit, tm_body body, int32_t rank)
{
    const size_t units = (args->N + unit - 1) / unit;
    args->run.used = tm_parallel(units, 1, tm_matmul_grain(unit * args->K * args->M), args->run.threads, body, args);
    return tm_finish(&args->run, rank);
}

#endif
