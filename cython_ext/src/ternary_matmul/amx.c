/* ternary_matmul with AMX int8: tiles of 16 rows of activations by 16 rows of weights, 64 columns an instruction.
 *
 * The 64 bytes of a group, under one of the nested masks of avx512.c, are a row of the tile that tdpbsud wants on its
 * right: 16 rows of weights by 4 columns. So 16 groups, masked with 3, 15 and 63 into a panel, are three tiles, and as
 * they lie in memory a fourth; the sums are told apart at the end as there, once for 32768 columns. Activations are the
 * tile on the left where they lie.
 *
 * A panel has 1024 columns of 64 rows: 48 KiB, made once for up to 256 rows of activations. Four sums stay in tiles
 * along it, of 32 rows of activations and two masks: for 4 loads of a KiB (8 cycles each) there are 4 products (16
 * cycles each). Sums wait in memory while other rows use the tiles.
 *
 * Fewer than 16 rows of activations leave most of a tile empty, and each KiB of weights takes the loads and the panel
 * all the same: they go by AVX-512, which this set has. */
#include "ternary_matmul.h"

#include "../amx_tiles.h"

#if TM_X86
TM_BEGIN(amx)

enum {
    SIDE = TM_TILE_ROWS,
    BLOCK = 2 * SIDE, /* rows of activations at once */
    SLAB = 256, /* between two walks over the weights; their sums are on the stack */
    STEP = TM_TILE_BYTES, /* columns of a tile */
    GROUPS = STEP / 4, /* in a step */
    STEPS = 16, /* in a panel */
    MASKS = 4,
};

typedef struct work {
    uint8_t panel[MASKS - 1][STEPS * GROUPS][TM_TILE]; /* masked groups */
    uint8_t last[MASKS][GROUPS][TM_TILE]; /* those of the last columns, where these fill no tile; then zeros */
    int8_t last_a[SLAB][STEP];
    int32_t u[SLAB][TM_TILE]; /* sums under each mask, of 16 rows of weights */
    int32_t sums[SLAB][TM_TILE];
} work;
_Static_assert(sizeof(work) == TM_AMX_WORK, "what the workspace of the variant counts");

/* A range of columns of one tile of weights, its masks in `work`. */
typedef struct range {
    const uint8_t *weights;
    const int8_t *a; /* of the slab's first row */
    size_t lda, steps;
    int first, last; /* whether sums begin here; whether there are columns beyond whole steps */
} range;

/* Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights; the odd sums and 5 are the second 16 rows'. */
static void configure(size_t rows)
{
    tm_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    const uint8_t counts[2] = {(uint8_t)(rows < SIDE ? rows : SIDE), (uint8_t)(rows < SIDE ? 0 : rows - SIDE)};
    for (int t = 0; t < TM_TILE_REGISTERS; t++) {
        config.rows[t] = t < 6 ? counts[t % 2] : GROUPS;
        config.bytes[t] = config.rows[t] ? TM_TILE_BYTES : 0;
    }
    tm_tile_configure(&config);
}

static void mask_groups(
    const uint8_t *weights, size_t groups, uint8_t (*m3)[64], uint8_t (*m15)[64], uint8_t (*m63)[64])
{
    for (size_t k = 0; k < groups; k++) {
        const __m512i w = _mm512_loadu_si512(weights + k * TM_TILE);
        _mm512_store_si512(m3[k], _mm512_and_si512(w, _mm512_set1_epi8(3)));
        _mm512_store_si512(m15[k], _mm512_and_si512(w, _mm512_set1_epi8(15)));
        _mm512_store_si512(m63[k], _mm512_and_si512(w, _mm512_set1_epi8(63)));
    }
}

/* One step: 16 or, with `two`, up to 32 rows of activations by 16 rows of weights under each of two masks. */
static inline __attribute__((always_inline)) void step(
    const int two, const int8_t *a, size_t lda, const void *low, const void *high)
{
    tm_tile_load(6, low, TM_TILE);
    tm_tile_load(4, a, lda);
    tm_tile_multiply(0, 4, 6);
    if (two) {
        tm_tile_load(5, a + SIDE * lda, lda);
        tm_tile_multiply(1, 5, 6);
    }
    tm_tile_load(7, high, TM_TILE);
    tm_tile_multiply(2, 4, 7);
    if (two)
        tm_tile_multiply(3, 5, 7);
}

/* Rows m to m + 31 of the slab, or up to m + 15, under the masks `pair` and `pair` + 1. */
static inline __attribute__((always_inline)) void block(
    const int two, const int pair, const range *r, size_t m, work *w)
{
    const size_t stride = sizeof w->u[0];
    int32_t *low = &w->u[m][SIDE * pair], *high = &w->u[m][SIDE * (pair + 1)];
    if (r->first) {
        tm_tile_zero(0);
        tm_tile_zero(2);
        if (two) {
            tm_tile_zero(1);
            tm_tile_zero(3);
        }
    } else {
        tm_tile_load(0, low, stride);
        tm_tile_load(2, high, stride);
        if (two) {
            tm_tile_load(1, low + SIDE * TM_TILE, stride);
            tm_tile_load(3, high + SIDE * TM_TILE, stride);
        }
    }
    const int8_t *a = r->a + m * r->lda;
    for (size_t s = 0; s < r->steps; s++) {
        const void *above = pair ? r->weights + s * GROUPS * TM_TILE : w->panel[1][s * GROUPS];
        step(two, a + s * STEP, r->lda, w->panel[pair][s * GROUPS], above);
    }
    if (r->last)
        step(two, w->last_a[m], STEP, w->last[pair], w->last[pair + 1]);
    tm_tile_store(0, low, stride);
    tm_tile_store(2, high, stride);
    if (two) {
        tm_tile_store(1, low + SIDE * TM_TILE, stride);
        tm_tile_store(3, high + SIDE * TM_TILE, stride);
    }
}

/* The range for all rows of the slab. */
static void columns(const range *r, size_t rows, work *w)
{
    size_t configured = 0;
    for (size_t m = 0; m < rows; m += BLOCK) {
        const size_t count = rows - m < BLOCK ? rows - m : BLOCK;
        if (count != configured)
            configure(configured = count);
        if (count > SIDE) {
            block(1, 0, r, m, w);
            block(1, 2, r, m, w);
        } else {
            block(0, 0, r, m, w);
            block(0, 2, r, m, w);
        }
    }
}

/* What the masks' sums say of the rows' own, see avx512.c. */
static void settle(size_t rows, work *w)
{
    for (size_t m = 0; m < rows; m++)
        for (int r = 0; r < SIDE; r++) {
            int32_t below = 0;
            for (int g = 0; g < MASKS; g++) {
                const int32_t u = w->u[m][SIDE * g + r];
                w->sums[m][SIDE * g + r] += (int32_t)((uint32_t)u - (uint32_t)below) >> 2 * g;
                below = u;
            }
        }
}

/* All columns of tile t of the weights, for `rows` rows of activations from row m on. */
static void tile_sums(const tm_ternary_matmul_args *args, size_t t, size_t m, size_t rows, work *w)
{
    const size_t whole = args->K / STEP * GROUPS, groups = (args->K + 3) / 4; /* of whole steps, and all */
    const uint8_t *tile = args->weights + t * groups * TM_TILE;
    memset(w->sums, 0, rows * sizeof *w->sums);
    for (size_t span = 0; span < groups; span += TM_MATMUL_CHUNK) {
        const size_t end = groups - span < TM_MATMUL_CHUNK ? groups : span + TM_MATMUL_CHUNK;
        for (size_t k = span; k < end; k += STEPS * GROUPS) {
            const size_t there = whole > k ? whole - k : 0;
            range r = {
                .weights = tile + k * TM_TILE,
                .a = args->a + m * args->lda + 4 * k,
                .lda = args->lda,
                .steps = (there < STEPS * GROUPS ? there : STEPS * GROUPS) / GROUPS,
                .first = k == span,
            };
            const size_t masked = r.steps * GROUPS, rest = groups - k - masked;
            mask_groups(r.weights, masked, w->panel[0], w->panel[1], w->panel[2]);
            if (rest && rest <= GROUPS && masked < STEPS * GROUPS) {
                r.last = 1;
                memset(w->last, 0, sizeof w->last);
                mask_groups(r.weights + masked * TM_TILE, rest, w->last[0], w->last[1], w->last[2]);
                memcpy(w->last[3], r.weights + masked * TM_TILE, rest * TM_TILE);
            }
            columns(&r, rows, w);
        }
        settle(rows, w);
    }
}

static void body(void *untyped, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = untyped;
    const size_t rest = args->K % STEP;
    work w __attribute__((aligned(64)));
    for (size_t m = 0; m < args->M; m += SLAB) {
        const size_t rows = args->M - m < SLAB ? args->M - m : SLAB;
        int32_t act_sum[SLAB];
        for (size_t i = 0; i < rows; i++) {
            const int8_t *a = args->a + (m + i) * args->lda;
            act_sum[i] = tm_sum(a, args->K);
            memset(w.last_a[i], 0, STEP);
            memcpy(w.last_a[i], a + args->K - rest, rest);
        }
        for (size_t t = begin; t < end; t++) {
            const size_t n = t * TM_TILE, count = args->N - n < TM_TILE ? args->N - n : TM_TILE;
            tile_sums(args, t, m, rows, &w);
            for (size_t i = 0; i < rows; i++)
                tm_matmul_store(args, m + i, n, count, w.sums[i], act_sum[i]);
        }
    }
    tm_tile_release();
}

int tm_ternary_matmul_amx(void *untyped)
{
    tm_ternary_matmul_args *args = untyped;
    if (args->M < TM_AMX_ROWS) {
        tm_ternary_matmul_avx512(args);
        args->run.ran = TM_RANK(amx);
        return 0;
    }
    /* A process that was not asked what it has asks here; one that is refused has no such set, and would end with an
     * illegal instruction. */
    static int asked;
    if (!__atomic_load_n(&asked, __ATOMIC_RELAXED)) {
        tm_tiles_permitted();
        __atomic_store_n(&asked, 1, __ATOMIC_RELAXED);
    }
    return tm_matmul_run_by(args, TM_TILE, body, TM_RANK(amx));
}

TM_END
#endif
