/* ternary_matmul with AMX int8: tiles of 16 rows of activations by 16 rows of weights, 64 columns an instruction.
 *
 * The 64 bytes of a group, under one of the nested masks of avx512.c, are a row of the tile that tdpbsud wants on its
 * right: 16 rows of weights by 4 columns. So 16 groups, masked with 3, 15 and 63 into a panel, are three tiles, and as
 * they lie in memory a fourth; the sums are told apart at the end as there, once for 32768 columns. Activations are the
 * tile on the left where they lie.
 *
 * A product takes 16 cycles, a load of a tile 8 from L1 and about 21 from L2. So two masks at a time, (3, 15) and then
 * (63, none), for up to 4096 columns: four sums stay in tiles, of 32 rows of activations and two masks, and a step of
 * 64 columns is two loads of activations, two of weights and four products. All rows of a slab pass the two masks'
 * panel, 2 KiB a step; where there are more columns, their sums wait in memory meanwhile.
 *
 * What else there is to do is done a little a step, in the shadow of products:
 * - The first rows of a slab make the panel, AHEAD steps before its use, into the next pass too: a load of a tile takes
 *   nothing from stores on their way, it waits until they are in L1. So the panel is a ring, of a pass's steps and
 *   AHEAD more; of AHEAD + 1, which stay in L1, where 32 rows are all.
 * - Rows whose last sums were stored by the block before are told apart and written out.
 *
 * Where 16 rows are all, the four masks go at once: their sums fill the tiles as well, and weights are read once.
 *
 * Fewer than 16 rows of activations leave most of a tile empty, and each KiB of weights takes the loads and the panel
 * all the same: they go by AVX-512, which this set has.
 *
 * Versions, share of what products alone reach, one thread, weights in L2, int32 / float32 outputs, by turns with a
 * benchmark outside of this project on a virtual machine of 32 cores with AMX, 2 MiB of L2 each (the host of two H100).
 * `tritmark gate 39e7995 eb42bc2 --op ternary_matmul --variant amx --suite speed` compares v1 and what is taken, and was
 * not run:
 *   rows x N x K        v1            20 steps      64 steps, taken
 *   16 x 2560 x 2560    0.11 / 0.13   0.16 / 0.41   0.16 / 0.42   (0.16: others were busy, 0.44 a moment later)
 *   32                  0.22 / 0.20   0.38 / 0.35   0.42 / 0.41
 *   48                  0.20 / 0.23   0.25 / 0.30   0.29 / 0.32
 *   64                  0.28 / 0.27   0.35 / 0.33   0.37 / 0.38
 *   128                 0.32 / 0.32   0.38 / 0.33   0.42 / 0.43
 *   512                 0.28 / 0.33   0.38 / 0.39   0.44 / 0.40
 *   16 x 4096 x 4096    0.12 / 0.12   0.34 / 0.35   0.36 / 0.32
 *   64                  0.29 / 0.28   0.35 / 0.31   0.36 / 0.34
 *   512                 0.30 / 0.30   0.37 / 0.38   0.37 / 0.42
 * v1 made a panel of 1024 columns under all masks at once, 48 KiB, and went over it once for each pair of masks and 32
 * rows. No better here: 8 to 16 steps, whose panel stays in L1; AHEAD 2, 3, 5; AHEAD 8 (0.31 at 16 rows); rows written
 * out at the end of a block (0.45 at 16 rows, 0.35 for 0.38 at 512); slabs of 512 rows; activations loaded with the
 * hint that L1 need not keep them (tileloaddt1). Nothing fetched ahead into L2 gains 0.02 where weights are there
 * already. A loop of nothing but loads from L1 and such products reached 1.0 on one machine of this kind and 0.28 on
 * another. */
#include "ternary_matmul.h"

#include "../amx_tiles.h"

#if TM_X86
TM_BEGIN(amx)

enum {
    SIDE = TM_TILE_ROWS,
    BLOCK = 2 * SIDE, /* rows of activations at once */
    SLAB = 256, /* rows of activations between two walks over the weights, whose sums are on the stack, at most; */
    SLAB_BYTES = 1 << 20, /* of so many bytes, half of L2, */
    LEAST = 4 * BLOCK, /* but not fewer than these */
    STEP = TM_TILE_BYTES, /* columns of a tile */
    GROUPS = STEP / 4, /* in a step */
    BYTES = GROUPS * TM_TILE, /* of a step's weights */
    MASKS = 4,
    STEPS = 64, /* most in a panel */
    AHEAD = 4, /* steps that masks are made before their use */
    EACH = 2, /* rows written out in a step */
    SPAN = TM_MATMUL_CHUNK / GROUPS, /* most steps between two settlements of sums */
    SETTLED = 4, /* steps until sums that were stored are read */
    WIDE = 2 * (STEPS + AHEAD), /* tiles of panel that two masks take */
    NARROW = 3 * (1 + AHEAD), /* and three */
    TILES = WIDE > NARROW ? WIDE : NARROW,
};

typedef uint8_t group[TM_TILE];

/* A range of columns of one tile of weights, within a span that is told apart at once. */
typedef struct range {
    const uint8_t *weights;
    const int8_t *a; /* of the slab's first row */
    size_t steps, n; /* n: the first row of weights */
    int first, ends, last; /* whether the span begins, or ends here; whether there are columns beyond whole steps */
    int more, whole; /* whether there are spans before; whether none is behind */
} range;

typedef struct work {
    group panel[TILES * GROUPS]; /* masked groups */
    group last[MASKS][GROUPS]; /* those of the last columns, where these fill no tile; then zeros */
    int8_t last_a[SLAB][STEP];
    int32_t u[SLAB][TM_TILE]; /* sums under each mask, of 16 rows of weights */
    int32_t sums[SLAB][TM_TILE]; /* rows' own, of the spans before */
    int32_t act_sum[SLAB];
    const tm_ternary_matmul_args *args;
    size_t slab; /* its first row */
    size_t steps, most, rest; /* whole steps in K; in a panel; groups in `last` */
    int all; /* masks at once, for 16 rows or fewer */
    tm_prefetch fetch;
    uint32_t configured;
    struct { /* rows of the slab whose sums under the masks are there, to be told apart */
        size_t row, end;
        range of;
    } due;
    struct { /* the step to mask next */
        const uint8_t *tile;
        size_t left, begin, step; /* to make; of its panel; in that */
        int pair;
    } next;
    size_t places, made, used; /* of steps in the panel; of the next to make, and of a pass's first */
} work;
_Static_assert(sizeof(work) == TM_AMX_WORK, "what the workspace of the variant counts");

/* Tiles below `weights` are sums and activations, `even` rows in those of even numbers, `odd` in the others. */
static void configure(size_t even, size_t odd, int weights, work *w)
{
    const uint32_t wanted = (uint32_t)(even | odd << 8) | (uint32_t)weights << 16;
    if (wanted == w->configured)
        return;
    w->configured = wanted;
    tm_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int t = 0; t < TM_TILE_REGISTERS; t++) {
        config.rows[t] = t >= weights ? GROUPS : (uint8_t)(t % 2 ? odd : even);
        config.bytes[t] = config.rows[t] ? TM_TILE_BYTES : 0;
    }
    tm_tile_configure(&config);
}

/* Groups under each mask that there is a place for. */
static inline __attribute__((always_inline)) void mask_groups(
    const uint8_t *weights, size_t groups, group *m3, group *m15, group *m63)
{
    for (size_t k = 0; k < groups; k++) {
        const __m512i v = _mm512_loadu_si512(weights + k * TM_TILE);
        if (m3) {
            _mm512_store_si512(m3[k], _mm512_and_si512(v, _mm512_set1_epi8(3)));
            _mm512_store_si512(m15[k], _mm512_and_si512(v, _mm512_set1_epi8(15)));
        }
        if (m63)
            _mm512_store_si512(m63[k], _mm512_and_si512(v, _mm512_set1_epi8(63)));
    }
}

static inline size_t place_after(size_t place, const work *w) { return place + 1 < w->places ? place + 1 : 0; }

/* Into the panel with the next step, in the order of their use: tiles, panels, pairs of masks, steps. */
static __attribute__((noinline)) void make(work *w)
{
    if (!w->next.left)
        return;
    w->next.left--;
    const uint8_t *from = w->next.tile + (w->next.begin + w->next.step) * BYTES;
    group *to = w->panel + w->made * (w->all ? 3 : 2) * GROUPS;
    w->made = place_after(w->made, w);
    if (w->next.pair) {
        mask_groups(from, GROUPS, NULL, NULL, to);
    } else { /* weights on their first way through, which may come from memory */
        if (w->all)
            mask_groups(from, GROUPS, to, to + GROUPS, to + 2 * GROUPS);
        else
            mask_groups(from, GROUPS, to, to + GROUPS, NULL);
        for (int k = 0; k < GROUPS && w->fetch.level != TM_PREFETCH_NONE; k++)
            tm_prefetch_line(from + k * TM_TILE, TM_PREFETCH_L2, w->fetch.bytes);
    }
    const size_t end = w->next.begin + w->most < w->steps ? w->next.begin + w->most : w->steps;
    if (w->next.begin + ++w->next.step < end)
        return;
    w->next.step = 0;
    if (!w->all && (w->next.pair ^= 2))
        return;
    w->next.begin = end;
    if (end == w->steps) {
        w->next.begin = 0;
        w->next.tile += w->steps * BYTES + w->rest * TM_TILE;
    }
}

/* What the masks' sums of one row that is due say of the rows' own, see avx512.c. */
static __attribute__((noinline)) void settle(work *w)
{
    const size_t m = w->due.row++, left = w->args->N - w->due.of.n;
    int32_t *u = w->u[m], *own = w->due.of.whole ? u : w->sums[m];
    const __m512i u0 = _mm512_load_si512(u), u1 = _mm512_load_si512(u + SIDE);
    const __m512i u2 = _mm512_load_si512(u + 2 * SIDE), u3 = _mm512_load_si512(u + 3 * SIDE);
    const __m512i told[MASKS] = {
        u0,
        _mm512_srai_epi32(_mm512_sub_epi32(u1, u0), 2),
        _mm512_srai_epi32(_mm512_sub_epi32(u2, u1), 4),
        _mm512_srai_epi32(_mm512_sub_epi32(u3, u2), 6),
    };
    for (int g = 0; g < MASKS; g++) {
        const __m512i before = w->due.of.more ? _mm512_load_si512(w->sums[m] + SIDE * g) : _mm512_setzero_si512();
        _mm512_store_si512(own + SIDE * g, _mm512_add_epi32(told[g], before));
    }
    if (w->due.of.whole)
        tm_matmul_store(w->args, w->slab + m, w->due.of.n, left < TM_TILE ? left : TM_TILE, own, w->act_sum[m]);
}

static inline void settle_most(size_t most, work *w)
{
    for (; most && w->due.row < w->due.end; most--)
        settle(w);
}

static inline void rows_due(const range *r, size_t m, size_t end, work *w)
{
    w->due.row = m;
    w->due.end = end;
    w->due.of = *r;
}

/* Rows m to m + 31 of the slab, or up to m + 15, under the masks `pair` and `pair` + 1. The first rows `make` a step of
 * the panel in each of theirs, AHEAD of it: the first of the next pass in their last ones. */
static inline __attribute__((always_inline)) void block(
    const int two, const int pair, int makes, const range *r, size_t m, work *w)
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
    const size_t end = r->steps + (size_t)r->last;
    size_t at = w->used;
    for (size_t s = 0; s < end; s++) {
        const int there = s < r->steps;
        if (makes && there)
            make(w);
        const size_t lda = there ? w->args->lda : STEP;
        const int8_t *a = there ? r->a + m * lda + s * STEP : w->last_a[m];
        group *from = there ? w->panel + at * 2 * GROUPS : w->last[pair];
        const uint8_t *above = !there ? w->last[pair + 1][0] : pair ? r->weights + s * BYTES : from[GROUPS];
        tm_tile_load(6, from, TM_TILE);
        tm_tile_load(4, a, lda);
        tm_tile_multiply(0, 4, 6);
        if (two) {
            tm_tile_load(5, a + SIDE * lda, lda);
            tm_tile_multiply(1, 5, 6);
        }
        tm_tile_load(7, above, TM_TILE);
        tm_tile_multiply(2, 4, 7);
        if (two)
            tm_tile_multiply(3, 5, 7);
        if (there)
            at = place_after(at, w);
        settle_most(s < SETTLED ? 0 : EACH, w);
    }
    settle_most(SLAB, w);
    tm_tile_store(0, low, stride);
    tm_tile_store(2, high, stride);
    if (two) {
        tm_tile_store(1, low + SIDE * TM_TILE, stride);
        tm_tile_store(3, high + SIDE * TM_TILE, stride);
    }
}

/* The range for all rows of the slab, under two masks. */
static inline __attribute__((always_inline)) void pass(const int pair, const range *r, size_t rows, work *w)
{
    for (size_t m = 0; m < rows; m += BLOCK) {
        const size_t count = rows - m < BLOCK ? rows - m : BLOCK;
        if (count < SIDE)
            configure(count, 0, 6, w);
        else /* 16 rows leave the odd tiles alone */
            configure(SIDE, count > SIDE ? count - SIDE : SIDE, 6, w);
        if (count > SIDE)
            block(1, pair, !m, r, m, w);
        else
            block(0, pair, !m, r, m, w);
        if (pair && r->ends)
            rows_due(r, m, m + count, w);
    }
    w->used = (w->used + r->steps) % w->places;
}

/* The range under all masks, where 16 rows or fewer are all of the slab. */
static void pass_of_all(const range *r, size_t rows, work *w)
{
    const size_t stride = sizeof w->u[0], end = r->steps + (size_t)r->last;
    int32_t *u = w->u[0];
    configure(rows, rows, 5, w);
    tm_tile_zero(0);
    tm_tile_zero(1);
    tm_tile_zero(2);
    tm_tile_zero(3);
    for (size_t s = 0; s < end; s++) {
        const int there = s < r->steps;
        if (there)
            make(w);
        group *from = there ? w->panel + w->used * 3 * GROUPS : w->last[0];
        tm_tile_load(4, there ? r->a + s * STEP : w->last_a[0], there ? w->args->lda : STEP);
        tm_tile_load(5, from, TM_TILE);
        tm_tile_multiply(0, 4, 5);
        tm_tile_load(6, from + GROUPS, TM_TILE);
        tm_tile_multiply(1, 4, 6);
        tm_tile_load(7, from + 2 * GROUPS, TM_TILE);
        tm_tile_multiply(2, 4, 7);
        tm_tile_load(5, there ? r->weights + s * BYTES : w->last[3][0], TM_TILE);
        tm_tile_multiply(3, 4, 5);
        if (there)
            w->used = place_after(w->used, w);
        settle_most(s < SETTLED ? 0 : EACH, w);
    }
    settle_most(SLAB, w);
    tm_tile_store(0, u, stride);
    tm_tile_store(1, u + SIDE, stride);
    tm_tile_store(2, u + 2 * SIDE, stride);
    tm_tile_store(3, u + 3 * SIDE, stride);
    rows_due(r, 0, rows, w);
}

/* All columns of tile t of the weights, for the slab's rows. */
static void tile_sums(const uint8_t *tile, size_t t, size_t rows, work *w)
{
    const uint8_t *rest = tile + w->steps * BYTES;
    const size_t span = SPAN / w->most * w->most;
    if (w->rest) {
        memset(w->last, 0, sizeof w->last);
        mask_groups(rest, w->rest, w->last[0], w->last[1], w->last[2]);
        memcpy(w->last[3], rest, w->rest * TM_TILE);
    }
    size_t begin = 0;
    do {
        const size_t end = begin + w->most < w->steps ? begin + w->most : w->steps;
        const range r = {
            .weights = tile + begin * BYTES,
            .a = w->args->a + w->slab * w->args->lda + begin * STEP,
            .steps = end - begin,
            .n = t * TM_TILE,
            .first = begin % span == 0,
            .ends = end % span == 0 || end == w->steps,
            .last = end == w->steps && w->rest,
            .more = begin >= span,
            .whole = end == w->steps,
        };
        if (w->all) {
            pass_of_all(&r, rows, w);
        } else {
            pass(0, &r, rows, w);
            pass(2, &r, rows, w);
        }
        begin = end;
    } while (begin < w->steps);
}

static void body(void *untyped, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = untyped;
    const size_t steps = args->K / STEP, rest = args->K % STEP;
    const size_t bytes = (args->K + 3) / 4 * TM_TILE; /* of a tile's weights */
    const size_t fit = SLAB_BYTES / args->K / BLOCK * BLOCK, most = fit < LEAST ? LEAST : fit < SLAB ? fit : SLAB;
    work w __attribute__((aligned(64)));
    w.args = args;
    w.rest = (rest + 3) / 4;
    w.fetch = tm_weights_prefetch();
    w.configured = 0;
    w.due.row = w.due.end = 0;
    for (w.slab = 0; w.slab < args->M; w.slab += most) {
        const size_t rows = args->M - w.slab < most ? args->M - w.slab : most;
        for (size_t i = 0; i < rows; i++) {
            const int8_t *a = args->a + (w.slab + i) * args->lda;
            memset(w.last_a[i], 0, STEP);
            memcpy(w.last_a[i], a + args->K - rest, rest);
            __m512i sum = _mm512_setzero_si512();
            for (size_t s = 0; s <= steps; s++) {
                const __m512i v = _mm512_loadu_si512(s < steps ? a + s * STEP : w.last_a[i]);
                sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), v);
            }
            w.act_sum[i] = _mm512_reduce_add_epi32(sum);
        }
        w.all = rows <= SIDE;
        const size_t longest = w.all ? SPAN : STEPS, panels = (steps + longest - 1) / longest;
        w.steps = steps;
        w.most = panels ? (steps + panels - 1) / panels : 1;
        w.next.tile = args->weights + begin * bytes;
        w.next.left = (end - begin) * steps * (w.all ? 1 : 2);
        w.next.begin = w.next.step = w.made = w.used = 0;
        w.next.pair = 0;
        w.places = AHEAD + (rows > BLOCK ? w.most : 1); /* what a single block has used, no other wants */
        for (int i = 0; i < AHEAD; i++)
            make(&w);
        for (size_t t = begin; t < end; t++)
            tile_sums(args->weights + t * bytes, t, rows, &w);
        settle_most(SLAB, &w);
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
