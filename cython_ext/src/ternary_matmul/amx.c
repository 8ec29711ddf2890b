/* ternary_matmul of tile64 with AMX int8, and of other formats that are converted to tile64 first (amx.h).
 *
 * Layout: the 64 bytes of a group, under one of the nested masks of avx512.c, are one row of the right tile of tdpbusd:
 * 16 rows of weights by 4 columns. 16 groups under the masks 3, 15 and 63 are three tiles; unmasked, as they lie in
 * memory, they are the fourth. The sums of the four are separated as in avx512.c, once in 32768 columns. Activations
 * are the left tile, packed (amx_rows.h) or in place.
 *
 * Algorithm: four tiles of sums stay in registers: 32 rows of activations under two masks, (3, 15) then (63, none), or
 * 16 rows under all masks. Between the products
 * - masked groups are made AHEAD steps before their use, into a ring that stays in L1: a tile load is not forwarded
 *   from pending stores;
 * - rows whose sums the previous block stored are settled and written out;
 * - lines of sums and outputs that are written soon are prefetched.
 *
 * Limit: a product takes 16 cycles, a tile load 8 from L1. Fills of L1 take load cycles and miss slots. Few rows fill
 * tiles partly and pay for all masks and the setup, so few rows and small products use AVX-512 (tm_amx_takes).
 *
 * Rates: `python suites/performance/instruction_sets.py --sets avx512 amx --rows 16 64 512` on a machine with AMX.
 * Versions and what lost: docs/kernels/amx.md. */
#include "amx.h"

#include "../amx_tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(amx)

#include "amx_outputs.h"
#include "amx_rows.h"

enum {
    GROUPS = STEP / 4, /* in a step */
    BYTES = GROUPS * TM_TILE, /* bytes of a step's weights */
    SPAN = TM_MATMUL_CHUNK / GROUPS, /* most steps between two settlements of sums */
    PLACES = 4, /* steps whose masked groups the ring holds */
    AHEAD = 2, /* how many steps before their use they are made */
    PART = GROUPS / 4, /* groups that are made between two products */
    FAR = 1 << 20, /* bytes of outputs above which output lines are prefetched */
    SETTLED = 4, /* steps after which stored sums may be read */
};

typedef uint8_t group[TM_TILE];

/* Which groups a step makes: under the masks 3 and 15, under 63, under all three, or none. */
typedef enum { LOW, HIGH, ALL, NOTHING } mask_set;

typedef struct work {
    group ring[PLACES][3 * GROUPS];
    group last[PLACES][GROUPS]; /* an incomplete last step's weights, padded, for recent tiles */
    int32_t u[BLOCK][TM_TILE]; /* sums under each mask, of 16 rows of weights */
    int32_t sums[BLOCK][TM_TILE]; /* sums of each row of weights from earlier spans */
    float scales[TM_TILE]; /* of the rows of weights with pending sums, if each has its own */
    const slab *of;
    const uint8_t *tiles; /* weights from the first row of tile `first_tile` */
    size_t first_tile;
    tm_prefetch fetch;
    uint32_t configured;
    size_t used; /* position in the ring of the next step */
    struct { /* rows whose masked sums are complete and not yet settled */
        size_t row, end, m, n; /* row and end within the block; its first row in the slab, first row of weights */
        int more, whole; /* whether earlier spans exist; whether no later span follows */
    } due;
    struct { /* the step to make next */
        walk at;
        const uint8_t *from;
        size_t begin, left; /* first step of the span; steps left in it */
        mask_set masks;
    } next;
} work;
_Static_assert(sizeof(work) == TM_AMX_WORK, "what the workspace of the variant counts");

static inline const uint8_t *tile_of(size_t t, const work *w)
{
    return w->tiles + (t - w->first_tile) * tile_bytes(w->of);
}

/* Configures the tiles: those below `weights` are sums and activations, with `even` rows in even-numbered ones, `odd`
 * rows in the others. */
static void configure(size_t even, size_t odd, int weights, work *w)
{
    const uint32_t wanted = (uint32_t)(even | odd << 8) | (uint32_t)weights << 16;
    if (wanted == w->configured)
        return;
    w->configured = wanted;
    tm_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int t = 0; t < TM_TILE_REGISTERS; t++) {
        config.rows[t] = t >= weights ? GROUPS : (uint8_t)(t % 2 ? odd : even);
        config.bytes[t] = TM_TILE_BYTES;
    }
    tm_tile_configure(&config);
}

/* Selects the next pass to make: low and high masks, then spans, then the next step of the walk. */
static __attribute__((noinline)) void next_pass(work *w)
{
    const slab *s = w->of;
    size_t end = w->next.begin + SPAN < s->steps ? w->next.begin + SPAN : s->steps;
    if (w->next.masks == LOW) {
        w->next.masks = HIGH;
    } else {
        w->next.begin = end;
        if (end == s->steps) {
            w->next.begin = 0;
            if (!walk_on(s, &w->next.at)) {
                w->next.masks = NOTHING;
                w->next.left = SIZE_MAX;
                return;
            }
        }
        w->next.masks = block_rows(s, w->next.at.m) > SIDE ? LOW : ALL;
        end = w->next.begin + SPAN < s->steps ? w->next.begin + SPAN : s->steps;
    }
    w->next.from = tile_of(w->next.at.pair % tiles_across(s), w) + w->next.begin * BYTES;
    w->next.left = end - w->next.begin;
}

/* Weights of the last step of a tile on the walk, padded with zeros. */
static inline group *last_of(size_t number, work *w) { return w->last[number % PLACES]; }

static __attribute__((noinline)) const uint8_t *make_last(work *w)
{
    group *last = last_of(w->next.at.number, w);
    memset(last, 0, sizeof w->last[0]);
    memcpy(last, w->next.from - BYTES, w->of->rest * TM_TILE);
    return last[0];
}

/* A step that is being made. */
typedef struct step {
    const uint8_t *from;
    group *to;
    mask_set masks;
    int fetches;
} step;

/* Starts the next step, for `place` in the ring. */
static inline __attribute__((always_inline)) step make_next(size_t place, work *w)
{
    step made = {.from = w->next.from, .to = w->ring[place % PLACES], .masks = w->next.masks};
    made.fetches = w->next.at.m % w->of->group == 0 && made.masks != HIGH && w->fetch.level != TM_PREFETCH_NONE;
    w->next.from += BYTES;
    if (w->next.left == 1 && w->of->rest && w->next.begin + SPAN >= w->of->steps)
        made.from = make_last(w);
    if (!--w->next.left)
        next_pass(w);
    return made;
}

/* Makes a quarter of it. */
static inline __attribute__((always_inline)) void make(const step *made, int part, const work *w)
{
    const uint8_t *from = made->from + part * PART * TM_TILE;
    group *to = made->to + part * PART;
    const __m512i m3 = _mm512_set1_epi8(3), m15 = _mm512_set1_epi8(15), m63 = _mm512_set1_epi8(63);
    switch (made->masks) {
    case LOW:
        for (int k = 0; k < PART; k++) {
            const __m512i v = _mm512_loadu_si512(from + k * TM_TILE);
            _mm512_store_si512(to[k], _mm512_and_si512(v, m3));
            _mm512_store_si512(to[GROUPS + k], _mm512_and_si512(v, m15));
        }
        break;
    case HIGH:
        for (int k = 0; k < PART; k++)
            _mm512_store_si512(to[k], _mm512_and_si512(_mm512_loadu_si512(from + k * TM_TILE), m63));
        break;
    case ALL:
        for (int k = 0; k < PART; k++) {
            const __m512i v = _mm512_loadu_si512(from + k * TM_TILE);
            _mm512_store_si512(to[k], _mm512_and_si512(v, m3));
            _mm512_store_si512(to[GROUPS + k], _mm512_and_si512(v, m15));
            _mm512_store_si512(to[2 * GROUPS + k], _mm512_and_si512(v, m63));
        }
        break;
    default: return;
    }
    if (made->fetches)
        for (int k = 0; k < PART; k++)
            tm_prefetch_line(from + k * TM_TILE, TM_PREFETCH_L2, w->fetch.bytes);
}

/* Stores 16 of a row's outputs, like tm_matmul_store_by; if `scaled`, like tm_four_store. */
static inline __attribute__((always_inline)) void store_16(
    void *out, const int32_t kind, const int scaled, __m512i own, __m512i act_sum, __m512 scales, __m512d factor)
{
    const __m512i sums = _mm512_sub_epi32(own, act_sum);
    if (kind == TM_OUT_INT32) {
        _mm512_storeu_si512(out, sums);
        return;
    }
    __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(sums));
    __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sums, 1));
    if (scaled) {
        low = _mm512_mul_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(scales)));
        high = _mm512_mul_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(scales, 1)));
    }
    const __m512 both = floats_of(_mm512_mul_pd(low, factor), _mm512_mul_pd(high, factor));
    if (kind == TM_OUT_FLOAT32)
        _mm512_storeu_ps(out, both);
    else
        _mm256_storeu_si256(out, bfloat16_of(both, scaled));
}

/* Computes the sums of each row of weights from the masks' sums of one pending row; see avx512.c. */
static inline __attribute__((always_inline)) void settle(const int32_t kind, const int scaled, work *w)
{
    const tm_ternary_matmul_args *args = w->of->args;
    const size_t i = w->due.row++, m = w->due.m + i, left = args->N - w->due.n;
    const int32_t *u = w->u[i];
    int32_t *sums = w->sums[i];
    const __m512i u0 = _mm512_load_si512(u), u1 = _mm512_load_si512(u + SIDE);
    const __m512i u2 = _mm512_load_si512(u + 2 * SIDE), u3 = _mm512_load_si512(u + 3 * SIDE);
    __m512i own[TM_TILE / SIDE] = {
        u0,
        _mm512_srai_epi32(_mm512_sub_epi32(u1, u0), 2),
        _mm512_srai_epi32(_mm512_sub_epi32(u2, u1), 4),
        _mm512_srai_epi32(_mm512_sub_epi32(u3, u2), 6),
    };
    if (w->due.more)
#pragma GCC unroll 4
        for (int q = 0; q < TM_TILE / SIDE; q++)
            own[q] = _mm512_add_epi32(own[q], _mm512_load_si512(sums + q * SIDE));
    if (!w->due.whole) {
#pragma GCC unroll 4
        for (int q = 0; q < TM_TILE / SIDE; q++)
            _mm512_store_si512(sums + q * SIDE, own[q]);
        return;
    }
    const size_t size = kind == TM_OUT_BFLOAT16 ? 2 : 4;
    char *out = (char *)args->out + tm_matmul_at(args, w->of->first + m, w->due.n) * size;
    char *const to = left < TM_TILE ? (char *)sums : out;
    const __m512i act_sum = _mm512_set1_epi32(w->of->act_sum[m]);
    const __m512d factor = _mm512_set1_pd(w->of->factor[m]);
#pragma GCC unroll 4
    for (size_t q = 0; q < TM_TILE / SIDE; q++) {
        const __m512 scales = scaled ? _mm512_load_ps(w->scales + q * SIDE) : _mm512_setzero_ps();
        store_16(to + q * SIDE * size, kind, scaled, own[q], act_sum, scales, factor);
    }
    if (left < TM_TILE)
        memcpy(out, sums, left * size);
}

static __attribute__((noinline)) void settle_some(size_t count, work *w)
{
    const int32_t kind = w->of->args->kind;
    const int scaled = w->of->format->scales != NULL;
    for (; count; count--)
        if (kind == TM_OUT_INT32)
            settle(TM_OUT_INT32, 0, w);
        else if (kind == TM_OUT_FLOAT32 && scaled)
            settle(TM_OUT_FLOAT32, 1, w);
        else if (kind == TM_OUT_FLOAT32)
            settle(TM_OUT_FLOAT32, 0, w);
        else if (scaled)
            settle(TM_OUT_BFLOAT16, 1, w);
        else
            settle(TM_OUT_BFLOAT16, 0, w);
}

static inline void settle_most(size_t most, work *w)
{
    const size_t left = w->due.end - w->due.row;
    if (most && left)
        settle_some(most < left ? most : left, w);
}

static inline void zero_sums(void)
{
    tm_tile_zero(0);
    tm_tile_zero(1);
    tm_tile_zero(2);
    tm_tile_zero(3);
}

/* A range of steps of a tile of weights and a block of rows, within a span that is settled at once. */
typedef struct range {
    const uint8_t *weights;
    size_t number, m, begin, steps; /* position on the walk; row of the slab */
    size_t settles; /* rows settled in a step */
    size_t fetched; /* lines of the block's outputs that are prefetched; they are written while the next block passes */
    size_t every; /* interval between prefetches */
    const char *out; /* the first output */
    size_t out_row; /* bytes between two rows of outputs */
    int lines; /* log2 of the lines of a row */
    int fetches; /* whether this is the first pass over the weights */
} range;

/* Prefetches two lines of outputs into L2, or the first alone. A pending line takes one of the few slots that all
 * misses of L1 share, and L2 prefetches the second if the next tile's lines follow soon. */
static inline __attribute__((always_inline)) void fetch_outputs(const range *r, size_t s)
{
    const size_t in_row = (size_t)1 << r->lines;
    for (size_t i = 2 * s; i < 2 * s + 2 && i < r->fetched; i += r->every)
        __builtin_prefetch(r->out + (i >> r->lines) * r->out_row + (i & (in_row - 1)) * 64, 0, 2);
}

/* Whether a step holds the last columns and is incomplete. */
static inline int is_partial(const range *r, size_t s, const work *w)
{
    return w->of->rest && r->begin + s + 1 == w->of->steps;
}

/* Steps of a pass during which another step of the same pass is made: all except the last ones. They need nothing of
 * `next`. */
static inline size_t like_steps(const range *r) { return r->steps > AHEAD + 1 ? r->steps - AHEAD - 1 : 0; }

static inline __attribute__((always_inline)) step
make_like(const mask_set masks, const range *r, size_t s, size_t used, work *w)
{
    return (step){
        .from = r->weights + (s + AHEAD) * BYTES,
        .to = w->ring[(used + AHEAD) % PLACES],
        .masks = masks,
        .fetches = masks != HIGH && r->fetches,
    };
}

static inline void made_like(size_t steps, size_t used, work *w)
{
    w->used = used;
    w->next.from += steps * BYTES;
    w->next.left -= steps;
}

/* In the last steps of a pass, prefetches the lines to which its sums are stored: `lines` of each of `rows` rows. */
static inline __attribute__((always_inline)) void fetch_sums(size_t left, size_t rows, size_t lines, const int32_t *at)
{
    enum { LAST = AHEAD + 1 };
    for (size_t i = left * rows / LAST; left < LAST && i < (left + 1) * rows / LAST; i++)
        for (size_t line = 0; line < lines; line++)
            __builtin_prefetch(at + i * TM_TILE + line * SIDE, 1, 3);
}

static inline __attribute__((always_inline)) void step_of_two(
    const step *made, const group *low, const uint8_t *high, const uint8_t *a, size_t settles, work *w)
{
    tm_tile_load(6, low, TM_TILE);
    tm_tile_load_once(4, a, STEP);
    tm_tile_load_once(5, a + SIDE * STEP, STEP);
    tm_tile_load(7, high, TM_TILE);
    make(made, 0, w);
    tm_tile_multiply(0, 4, 6);
    make(made, 1, w);
    tm_tile_multiply(1, 5, 6);
    make(made, 2, w);
    tm_tile_multiply(2, 4, 7);
    make(made, 3, w);
    tm_tile_multiply(3, 5, 7);
    settle_most(settles, w);
}

/* More than 16 packed rows, under the masks 3 and 15, or 63 and none. */
static inline __attribute__((always_inline)) void pass_of_two(const mask_set masks, const range *r, work *w)
{
    const size_t stride = sizeof w->u[0], like = like_steps(r);
    const uint8_t *a = packed_row(w->of, r->m) + r->begin * step_bytes(BLOCK);
    int32_t *sums = w->u[0] + (masks == LOW ? 0 : 2 * SIDE);
    zero_sums();
    size_t s = 0, used = w->used;
    for (; s < like; s++, a += step_bytes(BLOCK), used = (used + 1) % PLACES) {
        const step made = make_like(masks, r, s, used, w);
        fetch_outputs(r, masks == LOW ? s : r->steps + s);
        const uint8_t *high = masks == LOW ? w->ring[used][GROUPS] : r->weights + s * BYTES;
        step_of_two(&made, w->ring[used], high, a, s < SETTLED ? 0 : r->settles, w);
    }
    made_like(like, used, w);
    for (; s < r->steps; s++, a += step_bytes(BLOCK), w->used = (w->used + 1) % PLACES) {
        const step made = make_next(w->used + AHEAD, w);
        fetch_sums(r->steps - 1 - s, BLOCK, 2, sums);
        const uint8_t *raw = is_partial(r, s, w) ? last_of(r->number, w)[0] : r->weights + s * BYTES;
        const uint8_t *high = masks == LOW ? w->ring[w->used][GROUPS] : raw;
        step_of_two(&made, w->ring[w->used], high, a, s < SETTLED ? 0 : r->settles, w);
    }
    settle_most(SLAB, w);
    tm_tile_store(0, sums, stride);
    tm_tile_store(1, sums + SIDE * TM_TILE, stride);
    tm_tile_store(2, sums + SIDE, stride);
    tm_tile_store(3, sums + SIDE * TM_TILE + SIDE, stride);
}

static inline __attribute__((always_inline)) void step_of_one(
    const step *made, const group *low, const uint8_t *whole, const uint8_t *a, size_t lda, size_t settles, work *w)
{
    tm_tile_load_once(4, a, lda);
    tm_tile_load(5, low, TM_TILE);
    tm_tile_load(6, low + GROUPS, TM_TILE);
    tm_tile_load(7, low + 2 * GROUPS, TM_TILE);
    make(made, 0, w);
    tm_tile_multiply(0, 4, 5);
    tm_tile_load(5, whole, TM_TILE);
    make(made, 1, w);
    tm_tile_multiply(1, 4, 6);
    make(made, 2, w);
    tm_tile_multiply(2, 4, 7);
    make(made, 3, w);
    tm_tile_multiply(3, 4, 5);
    settle_most(settles, w);
}

/* 16 rows or fewer, under all masks. */
static void pass_of_one(const range *r, work *w)
{
    const slab *of = w->of;
    const size_t stride = sizeof w->u[0], like = like_steps(r), lda = of->packed ? STEP : of->args->lda;
    const size_t apart = of->packed ? step_bytes(SIDE) : STEP;
    const uint8_t *a = of->packed ? packed_row(of, r->m) : (const uint8_t *)of->args->a + (of->first + r->m) * lda;
    a += r->begin * apart;
    zero_sums();
    size_t s = 0, used = w->used;
    for (; s < like; s++, a += apart, used = (used + 1) % PLACES) {
        const step made = make_like(ALL, r, s, used, w);
        fetch_outputs(r, s);
        step_of_one(&made, w->ring[used], r->weights + s * BYTES, a, lda, s < SETTLED ? 0 : r->settles, w);
    }
    made_like(like, used, w);
    for (; s < r->steps; s++, a += apart, w->used = (w->used + 1) % PLACES) {
        const step made = make_next(w->used + AHEAD, w);
        fetch_sums(r->steps - 1 - s, SIDE, 4, w->u[0]);
        const int partial = is_partial(r, s, w), apart = partial && !of->packed;
        step_of_one(
            &made, w->ring[w->used], partial ? last_of(r->number, w)[0] : r->weights + s * BYTES,
            apart ? (const uint8_t *)of->last[r->m] : a, apart ? STEP : lda, s < SETTLED ? 0 : r->settles, w);
    }
    settle_most(SLAB, w);
    tm_tile_store(0, w->u[0], stride);
    tm_tile_store(1, w->u[0] + SIDE, stride);
    tm_tile_store(2, w->u[0] + 2 * SIDE, stride);
    tm_tile_store(3, w->u[0] + 3 * SIDE, stride);
}

/* Multiplies a block of rows by a tile. Its sums are settled during the next block, or at the end of the walk. */
static void block(const walk *at, work *w)
{
    const slab *s = w->of;
    const size_t m = at->m, rows = block_rows(s, m), t = at->pair % tiles_across(s), size = out_bytes(s);
    if (rows > SIDE)
        configure(SIDE, rows - SIDE, 6, w);
    else
        configure(rows, rows, 5, w);
    for (size_t begin = 0; begin < s->steps; begin += SPAN) {
        const size_t left = s->steps - begin, steps = left < SPAN ? left : SPAN;
        const range r = {
            .weights = tile_of(t, w) + begin * BYTES,
            .number = at->number,
            .fetched = s->args->M * s->args->N * size > FAR ? rows * size : 0,
            .every = stretch_tiles(s) > 1 ? 2 : 1,
            .out = (const char *)s->args->out + tm_matmul_at(s->args, s->first + m, t * TM_TILE) * size,
            .out_row = tm_matmul_at(s->args, 1, 0) * size,
            .lines = size == 4 ? 2 : 1,
            .m = m,
            .begin = begin,
            .steps = steps,
            .settles = BLOCK / (steps > SETTLED ? steps - SETTLED : 1) + 1,
            .fetches = m % s->group == 0 && w->fetch.level != TM_PREFETCH_NONE,
        };
        if (rows > SIDE) {
            pass_of_two(LOW, &r, w);
            pass_of_two(HIGH, &r, w);
        } else {
            pass_of_one(&r, w);
        }
        w->due.row = 0;
        w->due.end = rows;
        w->due.m = m;
        w->due.n = t * TM_TILE;
        w->due.more = begin > 0;
        w->due.whole = begin + steps == s->steps;
        if (s->format->scales && w->due.whole)
            s->format->scales(s->args, t, w->scales);
    }
}

/* Pairs of a row group and a tile, tiles innermost. */
static void passes(size_t begin, size_t end, work *w)
{
    const slab *s = w->of;
    walk at = {.end = end};
    begin_stretch(s, begin, &at);
    w->used = 0;
    w->due.row = w->due.end = 0;
    w->next.at = at;
    w->next.from = tile_of(at.pair % tiles_across(s), w);
    w->next.begin = 0;
    w->next.left = s->steps < SPAN ? s->steps : SPAN;
    w->next.masks = block_rows(s, at.m) > SIDE ? LOW : ALL;
    for (size_t place = 0; place < AHEAD; place++) {
        const step made = make_next(place, w);
        for (int part = 0; part < GROUPS / PART; part++)
            make(&made, part, w);
    }
    do
        block(&at, w);
    while (walk_on(s, &at));
    settle_most(SLAB, w);
}

static void body(void *untyped, size_t begin, size_t end)
{
    const slab *s = untyped;
    work w __attribute__((aligned(64)));
    w.of = s;
    w.tiles = s->args->weights;
    w.first_tile = 0;
    w.fetch = tm_tiles_prefetch();
    w.configured = 0;
    passes(begin, end, &w);
    tm_tile_release();
}

/* The same for weights of another format, stretch by stretch. */
static void arranged(void *untyped, size_t begin, size_t end)
{
    const slab *s = untyped;
    const size_t across = tiles_across(s), groups = s->args->K / 4,
                 most = tm_arranged_groups(TM_ARRANGED, s->format->unit);
    uint8_t room[stretch_tiles(s) * tile_bytes(s)] __attribute__((aligned(64)));
    work w __attribute__((aligned(64)));
    w.of = s;
    w.tiles = room;
    w.fetch.level = TM_PREFETCH_NONE;
    w.configured = 0;
    while (begin < end) {
        walk at = {.end = end};
        begin_stretch(s, begin, &at);
        w.first_tile = begin % across;
        for (size_t t = 0; t < at.behind - begin; t++)
            for (size_t k = 0; k < groups; k += most)
                s->format->arrange(
                    s->args, w.first_tile + t, k, groups - k < most ? groups - k : most,
                    room + (t * groups + k) * TM_TILE);
        passes(begin, at.behind, &w);
        begin = at.behind;
    }
    tm_tile_release();
}

int tm_matmul_amx(tm_ternary_matmul_args *args, const tm_amx_format *format)
{
    const size_t threads = args->run.threads < 1 ? 1 : (size_t)args->run.threads;
    if (!tm_amx_takes(args->M, args->N, args->K, threads, format->arrange != NULL)) {
        format->few(args);
        args->run.ran = TM_RANK(amx);
        return 0;
    }
    tm_tiles_asked();
    int packs;
    const size_t most = slab_rows(args, threads, &packs), rows = args->M < most ? args->M : most;
    slab s = {.args = args, .format = format, .steps = (args->K + STEP - 1) / STEP, .rest = (args->K % STEP + 3) / 4};
    uint8_t room[packs ? tm_amx_packed_bytes(rows, args->K) : rows * STEP] __attribute__((aligned(64)));
    s.packed = packs ? room : NULL;
    s.last = (int8_t (*)[STEP])room;
    args->run.used = 1;
    for (; s.first < args->M; s.first += most) {
        s.rows = args->M - s.first < most ? args->M - s.first : most;
        s.group = s.rows;
        tm_parallel(s.rows, 1, (packs ? PACK_GRAIN : SUM_GRAIN) / args->K + 1, args->run.threads, prepare, &s);
        s.group = group_rows(&s, threads, tiles_across(&s), format->arrange ? PAIRS_ARRANGED : PAIRS);
        const size_t pairs = (s.rows + s.group - 1) / s.group * tiles_across(&s);
        const size_t grain = tm_matmul_grain(TM_TILE * args->K * s.group);
        const int32_t used = tm_parallel(pairs, 1, grain, args->run.threads, format->arrange ? arranged : body, &s);
        args->run.used = used > args->run.used ? used : args->run.used;
    }
    return tm_finish(&args->run, TM_RANK(amx));
}

int tm_ternary_matmul_amx(void *args)
{
    static const tm_amx_format tile64 = {.few = tm_ternary_matmul_avx512};
    return tm_matmul_amx(args, &tile64);
}

TM_END
#endif
