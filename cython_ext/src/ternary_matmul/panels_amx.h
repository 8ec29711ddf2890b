/* Several rows of activations times formats with a scale for each group of weights, with AMX int8. Included behind
 * TM_BEGIN(amx).
 *
 * Layout: panels of 32 rows of weights, decoded once for all rows of activations that a thread takes with them. Codes
 * less 1 are bytes, in tiles of 16 rows by 64 columns, so no correction is subtracted from the sums.
 *
 * Algorithm: a unit is 256 columns, one group or four. A block of 32 rows of activations makes 32 x 32 sums of it in
 * four tiles. Their products with the scales, in float64, are added to totals between the tiles' products of the next
 * block or unit; outputs are written there too. A unit is decoded just before its first use. The totals of TOTALS rows
 * of activations stay in L1 while all units pass.
 *
 * With TM_AMX_TILED 1, weights are tile64 with scales of groups (tile64_grouped/): a field of its bytes is the codes of
 * 16 rows in the order of a tile. Sums of the groups are float32 there, in their order, in the room of the float64
 * totals and scales.
 *
 * Limit: the four products of a step of 64 columns take 64 cycles. 128 lines loaded, and conversion and multiply-add of
 * 64 vectors of totals on two ports, predict 64 to 130 cycles. Stores of tiles, decoding and outputs add to it.
 *
 * Compare with AVX-512 on a machine with AMX: `python suites/performance/instruction_sets.py --format tq2_0 --sets
 * avx512 amx --rows 16 64 512`. Versions, measurements and what lost: docs/kernels/amx.md. */
#ifndef TM_PANELS_AMX_H
#define TM_PANELS_AMX_H

#include "../amx_tiles.h"
#include "amx.h"
#include "amx_outputs.h"
#include "amx_rows.h"
#include "panels_avx512.h"

#ifndef TM_AMX_TILED
#define TM_AMX_TILED 0
#endif

enum {
    PANEL = 2 * SIDE, /* rows of weights */
    UNIT = 256, /* columns between two additions to the totals */
    UNIT_STEPS = UNIT / STEP, /* the same, in tiles */
    TILE = SIDE * STEP, /* bytes of a tile of codes */
    TOTALS = TM_AMX_TOTALS, /* rows of activations whose totals are kept at once: whole blocks */
    DOUBLES = 8, /* in a vector */
};

/* What a format provides. */
typedef struct tm_amx_panels {
    /* tm_panel_decoded for a group of each of 16 rows; NULL with TM_AMX_TILED. */
    void (*decode)(const uint8_t *const *groups, int8_t *to);
    size_t weights, bytes, scale_at; /* of a group, see tm_paneled */
    int by_fours; /* see `slab` */
    size_t fewest; /* fewest rows of activations, if more than for all formats */
    tm_kernel few; /* AVX-512, for the other products */
} tm_amx_panels;

typedef int32_t unit_sums[BLOCK][PANEL];

/* Sums of a block of rows that are not yet added to its totals. */
typedef struct due {
    const unit_sums *sums; /* for each group */
    const double (*scales)[PANEL];
    double (*totals)[PANEL];
    size_t row, rows, groups;
    size_t m; /* the first row, counted in the slab */
    int begins, ends; /* whether these are the first sums; whether they are the last, after which outputs are written */
} due;

/* A panel, and a thread's workspace. */
typedef struct work {
    const slab *s; /* activations, packed */
    const tm_amx_panels *how;
    size_t n, count; /* first row of weights, and the number of rows */
    const uint8_t *at[PANEL]; /* the next groups to decode */
    int8_t *codes; /* of units: four tiles of the first 16 rows, then four of the others */
    double (*scales)[PANEL]; /* of each group */
    size_t turn;
    due due;
    unit_sums sums[2][UNIT_STEPS] __attribute__((aligned(64)));
    double totals[TOTALS][PANEL] __attribute__((aligned(64)));
} work;

_Static_assert(sizeof(work) == TM_AMX_PANEL_WORK, "what the workspace of the variant counts");

typedef struct eights {
    __m512d low, high;
} eights;

/* The totals of 16 rows of weights from row v of the panel. */
static inline __attribute__((always_inline)) eights totals_of(const double *totals, size_t v)
{
    if (!TM_AMX_TILED)
        return (eights){_mm512_load_pd(totals + v), _mm512_load_pd(totals + v + DOUBLES)};
    const float *const of = (const float *)totals + v;
    return (eights){_mm512_cvtps_pd(_mm256_load_ps(of)), _mm512_cvtps_pd(_mm256_load_ps(of + DOUBLES))};
}

/* Writes outputs of rows [begin, end) of the pending block, like tm_group_store. */
static __attribute__((noinline)) void store_rows(size_t begin, size_t end, const work *w)
{
    const tm_ternary_matmul_args *args = w->s->args;
    const due *d = &w->due;
    const size_t size = out_bytes(w->s);
    for (size_t r = begin; r < end; r++) {
        char *out = (char *)args->out + tm_matmul_at(args, w->s->first + d->m + r, w->n) * size;
        const __m512d factor = _mm512_set1_pd(w->s->factor[d->m + r]);
        for (size_t v = 0; v < w->count; v += SIDE, out += SIDE * size) {
            const __mmask16 there = w->count - v < SIDE ? (__mmask16)((1 << (w->count - v)) - 1) : 0xffff;
            const eights total = totals_of(d->totals[r], v);
            const __m512 values = floats_of(_mm512_mul_pd(total.low, factor), _mm512_mul_pd(total.high, factor));
            if (size == 4)
                _mm512_mask_storeu_ps(out, there, values);
            else
                _mm256_mask_storeu_epi16(out, there, bfloat16_of(values, 1));
        }
    }
}

static inline __m512d eight(const int32_t *sums)
{
    return _mm512_cvtepi32_pd(_mm256_load_si256((const __m256i *)sums));
}

/* Adds the sums of `groups` groups of rows [begin, end) to their totals, in the order of tm_panel_add. `before`: mask
 * of the totals so far, zero for the first unit. `one`: a unit is one group. */
static inline __attribute__((always_inline)) void add_by(
    const int one, const int groups, const unit_sums *sums, const double (*scales)[PANEL], double (*totals)[PANEL],
    __mmask8 before, size_t begin, size_t end)
{
    if (one) {
        __m512d scale[PANEL / DOUBLES];
#pragma GCC unroll 4
        for (int i = 0; i < PANEL / DOUBLES; i++)
            scale[i] = _mm512_load_pd(scales[0] + i * DOUBLES);
        for (size_t r = begin; r < end; r++)
#pragma GCC unroll 4
            for (int i = 0; i < PANEL / DOUBLES; i++) {
                double *const total = totals[r] + i * DOUBLES;
                const __m512d was = _mm512_maskz_load_pd(before, total);
                _mm512_store_pd(total, _mm512_fmadd_pd(scale[i], eight(sums[0][r] + i * DOUBLES), was));
            }
        return;
    }
#pragma GCC unroll 1
    for (int i = 0; i < PANEL; i += DOUBLES) {
        __m512d scale[UNIT_STEPS];
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++)
            scale[g] = _mm512_load_pd(scales[g] + i);
        for (size_t r = begin; r < end; r++) {
            __m512d of = _mm512_mul_pd(scale[0], eight(sums[0][r] + i));
            if (groups > 1)
                of = _mm512_fmadd_pd(scale[1], eight(sums[1][r] + i), of);
            if (groups == 3)
                of = _mm512_add_pd(of, _mm512_mul_pd(scale[2], eight(sums[2][r] + i)));
            if (groups == 4)
                of = _mm512_add_pd(
                    of,
                    _mm512_fmadd_pd(scale[3], eight(sums[3][r] + i), _mm512_mul_pd(scale[2], eight(sums[2][r] + i))));
            _mm512_store_pd(totals[r] + i, _mm512_add_pd(_mm512_maskz_load_pd(before, totals[r] + i), of));
        }
    }
}

/* Adds the sums of `groups` groups of rows [begin, end) to their totals, in float32 and in the order of the groups, with
 * TM_AMX_TILED. */
static inline __attribute__((always_inline)) void add_tiled(
    size_t groups, const unit_sums *sums, const double (*scales)[PANEL], double (*totals)[PANEL], __mmask16 before,
    size_t begin, size_t end)
{
#pragma GCC unroll 1
    for (size_t v = 0; v < PANEL; v += SIDE) {
        __m512 scale[UNIT_STEPS];
        for (size_t g = 0; g < groups; g++)
            scale[g] = _mm512_load_ps((const float *)scales[g] + v);
        for (size_t r = begin; r < end; r++) {
            float *const total = (float *)totals[r] + v;
            __m512 of = _mm512_maskz_load_ps(before, total);
            for (size_t g = 0; g < groups; g++)
                of = _mm512_add_ps(of, _mm512_mul_ps(scale[g], _mm512_cvtepi32_ps(_mm512_load_si512(sums[g][r] + v))));
            _mm512_store_ps(total, of);
        }
    }
}

/* Adds at most `most` of the pending rows. `sets`: sets of sums, one for each group of a unit. */
static inline __attribute__((always_inline)) void add_rows(const int sets, size_t most, work *w)
{
    const due d = w->due;
    const size_t left = d.rows - d.row, end = d.row + (most < left ? most : left);
    const __mmask8 before = d.begins ? 0 : 0xff;
    if (d.row == end)
        return;
    if (TM_AMX_TILED)
        add_tiled(d.groups, d.sums, d.scales, d.totals, before ? 0xffff : 0, d.row, end);
    else if (sets == 1)
        add_by(1, 1, d.sums, d.scales, d.totals, before, d.row, end);
    else if (d.groups == 4)
        add_by(0, 4, d.sums, d.scales, d.totals, before, d.row, end);
    else if (d.groups == 3)
        add_by(0, 3, d.sums, d.scales, d.totals, before, d.row, end);
    else if (d.groups == 2)
        add_by(0, 2, d.sums, d.scales, d.totals, before, d.row, end);
    else
        add_by(0, 1, d.sums, d.scales, d.totals, before, d.row, end);
    if (d.ends)
        store_rows(d.row, end, w);
    w->due.row = end;
}

/* Multiplies a unit of a block of rows, one or `two` tiles of them, by the panel. */
static inline __attribute__((always_inline)) void multiply(
    const int sets, const int two, size_t steps, const uint8_t *a, const int8_t *b, unit_sums *sums, work *w)
{
    const size_t stride = sizeof sums[0][0], most = BLOCK / UNIT_STEPS, in_set = UNIT_STEPS / (size_t)sets;
    for (size_t s = 0; s < steps; s++, a += step_bytes(two ? BLOCK : SIDE), b += TILE) {
        int32_t (*const to)[PANEL] = sums[s / in_set];
        if (s % in_set == 0) {
            tm_tile_zero(0);
            tm_tile_zero(2);
            if (two) {
                tm_tile_zero(1);
                tm_tile_zero(3);
            }
        }
        tm_tile_load(6, b, STEP);
        tm_tile_load_once(4, a, STEP);
        tm_tile_load(7, b + UNIT_STEPS * TILE, STEP);
        tm_tile_multiply_signed(0, 4, 6);
        tm_tile_multiply_signed(2, 4, 7);
        if (two) {
            tm_tile_load_once(5, a + TILE, STEP);
            tm_tile_multiply_signed(1, 5, 6);
            tm_tile_multiply_signed(3, 5, 7);
        }
        add_rows(sets, most, w);
        if (s % in_set + 1 == in_set || s + 1 == steps) {
            tm_tile_store(0, to[0], stride);
            tm_tile_store(2, to[0] + SIDE, stride);
            if (two) {
                tm_tile_store(1, to[SIDE], stride);
                tm_tile_store(3, to[SIDE] + SIDE, stride);
            }
        }
    }
    add_rows(sets, BLOCK, w);
}

/* decode for tiles of 64 rows; 16 rows are a field of their bytes. */
static inline void decode_tiled(size_t g, size_t groups, int8_t *codes, work *w)
{
    const tm_amx_panels *how = w->how;
    const size_t first = w->n % TM_TILE, tile = w->n / TM_TILE * (w->s->args->K / how->weights);
    const __m512i m3 = _mm512_set1_epi8(3), one = _mm512_set1_epi8(1);
    for (size_t i = 0; i < groups; i++) {
        const uint8_t *group = w->s->args->weights + (tile + g + i) * how->bytes;
        const uint8_t *lines = group + 2 * TM_TILE;
        for (size_t half = 0; half < PANEL / SIDE; half++) {
            const size_t at = first + half * SIDE;
            const __m128i field = _mm_cvtsi64_si128((int64_t)(at / SIDE * 2));
            int8_t *to = codes + half * UNIT_STEPS * TILE + i * how->weights * SIDE;
            for (size_t k = 0; k < how->weights / 4; k++) {
                const __m512i w_u8x64 = _mm512_srl_epi16(_mm512_loadu_si512(lines + k * TM_TILE), field);
                _mm512_store_si512(to + k * TM_TILE, _mm512_sub_epi8(_mm512_and_si512(w_u8x64, m3), one));
            }
            const __m256i stored = _mm256_loadu_si256((const __m256i *)(group + 2 * at));
            _mm512_store_ps((float *)w->scales[g + i] + half * SIDE, _mm512_cvtph_ps(stored));
        }
    }
}

/* Decodes the groups of a unit; the first is number g. */
static void decode(size_t g, size_t groups, int8_t *codes, work *w)
{
    if (TM_AMX_TILED) {
        decode_tiled(g, groups, codes, w);
        return;
    }
    const tm_amx_panels *how = w->how;
    const size_t row = w->s->args->K / how->weights * how->bytes;
    tm_panel_ahead(w->at, PANEL, w->s->args->weights + w->n * row, row, g * how->bytes, groups * how->bytes);
    for (size_t i = 0; i < groups; i++) {
        for (size_t half = 0; half < PANEL / SIDE; half++) {
            const uint8_t **at = w->at + SIDE * half;
            __m512d of[2];
            how->decode(at, codes + half * UNIT_STEPS * TILE + i * how->weights * SIDE);
            tm_panel_scales(at, how->scale_at, of);
            _mm512_store_pd(w->scales[g + i] + SIDE * half, of[0]);
            _mm512_store_pd(w->scales[g + i] + SIDE * half + DOUBLES, of[1]);
        }
        for (size_t r = 0; r < PANEL; r++)
            w->at[r] += how->bytes;
    }
}

/* Runs a panel and rows [m, end) of the slab, TOTALS rows at a time. The first ones decode it; if there are no others,
 * all units are decoded into one place. */
static inline __attribute__((always_inline)) void pass(const int sets, size_t m, size_t end, work *w)
{
    const slab *s = w->s;
    const size_t begin = m, unit_bytes = end - m > TOTALS ? UNIT * PANEL : 0;
    for (; m < end; m += TOTALS) {
        const size_t some = end - m < TOTALS ? end - m : TOTALS;
        for (size_t step = 0, unit = 0; step < s->steps; step += UNIT_STEPS, unit++) {
            const size_t steps = s->steps - step < UNIT_STEPS ? s->steps - step : UNIT_STEPS;
            const size_t in_set = UNIT_STEPS / (size_t)sets, group = step / in_set, groups = steps / in_set;
            int8_t *codes = w->codes + unit * unit_bytes;
            if (m == begin)
                decode(group, groups, codes, w);
            for (size_t first = 0; first < some; first += BLOCK) {
                const size_t rows = some - first < BLOCK ? some - first : BLOCK;
                const uint8_t *a = packed_row(s, m + first) + step * step_bytes(rows);
                unit_sums *sums = w->sums[w->turn];
                w->turn = !w->turn;
                if (rows > SIDE)
                    multiply(sets, 1, steps, a, codes, sums, w);
                else
                    multiply(sets, 0, steps, a, codes, sums, w);
                w->due = (due){
                    .sums = sums,
                    .scales = (const double (*)[PANEL])w->scales + group,
                    .totals = w->totals + first,
                    .rows = rows,
                    .groups = groups,
                    .m = m + first,
                    .begins = step == 0,
                    .ends = step + steps == s->steps,
                };
            }
        }
    }
    add_rows(sets, BLOCK, w);
}

typedef struct panels {
    slab rows;
    const tm_amx_panels *how;
} panels;

static inline __attribute__((always_inline)) void pairs_by(const int sets, const panels *p, size_t begin, size_t end)
{
    const slab *s = &p->rows;
    const tm_ternary_matmul_args *args = s->args;
    const size_t across = (args->N + PANEL - 1) / PANEL, groups = args->K / p->how->weights;
    int8_t codes[tm_amx_codes(args->M, args->K)] __attribute__((aligned(64)));
    double scales[groups][PANEL] __attribute__((aligned(64)));
    work w;
    w.s = s;
    w.how = p->how;
    w.codes = codes;
    w.scales = scales;
    w.turn = 0;
    w.due.row = w.due.rows = 0;
    tm_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int t = 0; t < TM_TILE_REGISTERS; t++) {
        config.rows[t] = t < 6 && s->rows < SIDE ? (uint8_t)s->rows : SIDE;
        config.bytes[t] = TM_TILE_BYTES;
    }
    tm_tile_configure(&config);
    for (size_t pair = begin; pair < end; pair++) {
        const size_t m = pair / across * s->group;
        w.n = pair % across * PANEL;
        w.count = args->N - w.n < PANEL ? args->N - w.n : PANEL;
        if (!TM_AMX_TILED)
            tm_rows_begin(args, w.n, w.count, groups * p->how->bytes, PANEL, w.at);
        pass(sets, m, group_end(s, m), &w);
    }
    tm_tile_release();
}

/* Runs pairs of a group of rows of activations and a panel, panels innermost. */
static void pairs(void *untyped, size_t begin, size_t end)
{
    const panels *p = untyped;
    if (p->how->weights == UNIT)
        pairs_by(1, p, begin, end);
    else if (TM_AMX_TILED && p->how->weights == UNIT / 2)
        pairs_by(2, p, begin, end);
    else
        pairs_by(UNIT_STEPS, p, begin, end);
}

static int tm_panels_amx(tm_ternary_matmul_args *args, const tm_amx_panels *how)
{
    const size_t threads = args->run.threads < 1 ? 1 : (size_t)args->run.threads;
    if (args->M < how->fewest || !tm_amx_takes(args->M, args->N, args->K, threads, 1)) {
        how->few(args);
        args->run.ran = TM_RANK(amx);
        return 0;
    }
    const size_t across = (args->N + PANEL - 1) / PANEL, most = even_rows(args->M, tm_amx_packed_rows(args->K));
    uint8_t room[tm_amx_packed_bytes(args->M < most ? args->M : most, args->K)] __attribute__((aligned(64)));
    panels p = {.how = how, .rows = {.args = args, .steps = args->K / STEP, .by_fours = how->by_fours, .packed = room}};
    slab *s = &p.rows;
    tm_tiles_asked();
    args->run.used = 1;
    for (; s->first < args->M; s->first += most) {
        s->rows = args->M - s->first < most ? args->M - s->first : most;
        s->group = s->rows;
        tm_parallel(s->rows, 1, PACK_GRAIN / args->K + 1, args->run.threads, prepare, s);
        s->group = group_rows(s, threads, across, PAIRS_ARRANGED);
        const size_t count = (s->rows + s->group - 1) / s->group * across;
        const size_t grain = tm_matmul_grain(PANEL * args->K * s->group);
        const int32_t used = tm_parallel(count, 1, grain, args->run.threads, pairs, &p);
        args->run.used = used > args->run.used ? used : args->run.used;
    }
    return tm_finish(&args->run, TM_RANK(amx));
}

#endif
