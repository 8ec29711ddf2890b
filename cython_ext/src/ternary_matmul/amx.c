/* ternary_matmul with AMX int8: tiles of 16 rows of activations by 16 rows of weights, 64 columns an instruction.
 *
 * The 64 bytes of a group, under one of the nested masks of avx512.c, are a row of the tile that tdpbsud wants on its
 * right: 16 rows of weights by 4 columns. So 16 groups, masked with 3, 15 and 63, are three tiles, and as they lie in
 * memory a fourth; the sums are told apart at the end as there, once for 32768 columns. Activations are the tile on the
 * left, packed (amx_rows.h) or where they lie.
 *
 * A product takes 16 cycles, a load of a tile 8 from L1. Four sums stay in tiles: 32 rows of activations under two
 * masks, (3, 15) and then (63, none), which takes four loads and four products a step of 64 columns; or 16 rows under
 * all masks, with five loads. What else there is to do is done in the shadow of products:
 * - Each block of rows makes its masked groups itself, AHEAD steps before their use, into a ring that stays in L1: a
 *   load of a tile takes nothing from stores on their way, it waits until they are in L1.
 * - Rows whose last sums were stored by the block before are told apart and written out, some in a step.
 * - Lines that are about to be written, sums' and outputs', are fetched.
 *
 * Fewer than 16 rows of activations leave a part of the tile empty, and a product of few takes less, but each KiB of
 * weights takes the loads and the masks all the same; and a call has 0.6 us to do for the tiles' sake. So few rows, and
 * few products, go by AVX-512, which this set has (tm_amx_takes). Time by AVX-512 over that by tiles, on such a machine
 * as below, by turns, outside of the project: the geometric mean of 640 x 2560, 2560 x 2560, 2560 x 6912, 6912 x 2560 and
 * 13824 x 2560 in the caches; the least of the second to fourth of them from memory:
 *   rows                      1     2     3     4     5     6     8     12    15
 *   caches, 1 thread          0.77  0.84  0.96  1.13        1.54  2.04  2.54  3.02
 *   caches, 16 threads        0.59  0.74  0.88  1.00        1.24  1.41  1.78  1.92
 *   memory, 1 thread                0.80  0.87  0.96  0.92  1.10  1.45        1.97
 *   memory, 16 threads              0.70  0.90  0.93  0.95  1.03  1.08        1.59
 * and of small weights, one thread:
 *   64 x 64                               0.78  0.78  0.79        0.81        0.87
 *   128 x 256                             0.76  0.79  0.84        0.96        1.19
 *   256 x 256                             0.78  0.84  0.90        1.10        1.43
 *   512 x 512                             0.90  1.02  1.11        1.49        1.92
 * With 16 threads 6 and 8 rows are at 0.86 and 0.94 with 512 x 512, 0.88 and 0.96 with 640 x 640, 0.91 and 0.96 with
 * 1024 x 1024, 1.04 and 1.23 with 640 x 2560; 16 rows at 1.02 at least from 512 x 512 on. There 2^20 products in place of
 * 2^19 as what pays for one more thread gain 21 % with 16 rows by 256 x 256, and lose 9 % with 32.
 *
 * Cycles that a step of four products takes beside its 64, in loops of nothing else, measured outside of this project
 * on a virtual machine with AMX (the host of an H100), in moments in which the core's other hyperthread was idle:
 *   all tiles from L1                                                                       0
 *   masked groups made into a ring of 4 steps, activations from L1                          1
 *   activations from L2, packed or with lines of a tile in many sets, nothing made          1
 *   both, all loads before the products                                                     17; rows in place 30
 *   the same with the hint that L1 need not keep activations (tileloaddt1)                  14; rows in place 38
 *   and groups made between products                                                        8; rows in place 23 to 34
 *   masked groups made into a ring of 16 steps, which L1 does not hold beside the rest      118
 *   masked groups loaded from a panel of all steps in L2, nothing made                      24
 *   sums stored and loaded every 8 steps, which would let a panel stay in L1                26
 *   the fourth, with activations fetched into L1 a step ahead                               36
 * So what comes from L2 is short: activations and weights do, and nothing else.
 *
 * The same of the kernel itself, by turns in moments in which the other hyperthread was idle: share of what products alone
 * reach with parts left out, 64 and 512 rows by 2560 x 2560, one thread, outside of this project:
 *   as it is                                                     0.52   0.54
 *   no masked groups made                                        0.61   0.64
 *   sums neither told apart nor written out                      0.65   0.64
 *   neither of both                                              0.75   0.72
 *   nor lines fetched, nor sums stored                           0.83   0.82
 *   and activations and weights from L1                          0.89   0.86
 *   masked groups made then, all else left out                   0.87   0.86
 *   masked groups made with activations and weights from L2      0.72   0.73
 * Masked groups cost next to nothing where all comes from L1, and much where it comes from L2, which costs little by
 * itself. That is what would be if a line that enters L1 took a cycle in which L1 gives nothing: of a step 48 enter (32 of
 * activations, 16 of weights), and 80 are read, two a cycle: 88 cycles for the 64 of the products, 0.73; without masked
 * groups 40 and 64, 72 cycles. Under all masks at once 32 enter, 96 are read and 48 are written. Of what is written out 0.03
 * to 0.06 are outputs' lines: all sums told apart in one step, four rows in a step, lines fetched into L1 to be written (8
 * or 16 steps ahead, or two or four rows), or for rows below FAR too are no better.
 *
 * Loops that do parts of v3 and nothing else, outside of this project (64 and 512 rows by 2560 x 2560, one core, the other
 * hyperthread idle):
 *   masked groups made, sums stored                              0.77   0.78
 *   activations packed beforehand                                0.73   0.72
 *   sums told apart, into one line of L1                         0.79   0.79
 *   outputs written                                              0.62   0.57
 *   and fetched before                                           0.61   0.61
 * So it is not the work of telling sums apart, but the outputs' lines. Each comes from L3, and takes for 300 cycles one of
 * the 16 places that all misses of L1 share, which activations and weights from L2 take most of as it is. Stores past the
 * caches need none, 0.73 and 0.71; but whoever reads outputs then waits for memory: with all of them added up behind each
 * product it is 0.56 and 0.60 for 0.62 and 0.56, or 0.64 and 0.60 with stretches as in v4. Activations that stay in L1 over
 * a stretch of tiles: 16 rows under all masks, of 8, 16, 20 or 40 steps 0.55, 0.65, 0.70, 0.74, with 32 rows and 6 to 12
 * steps 0.55 to 0.64; groups under two masks of 10 to 20 steps that stay there over all rows 0.40 to 0.62 with 64 rows and
 * 0.65 to 0.70 with 512: sums are stored and loaded for each.
 *
 * Versions, share of what products alone reach, one thread, int32 outputs, by turns on such a machine, medians of
 * moments in which the other hyperthread was idle / busy (which halves products too):
 *   rows x N x K        v2            v3
 *   16 x 2560 x 2560    0.40 / 0.32   0.60 / 0.55
 *   32                  0.42 / 0.37   0.57 / 0.57
 *   48                  0.32 / 0.36   0.47 / 0.54
 *   64                  0.37 / 0.39   0.55 / 0.58
 *   128                 0.38 / 0.40   0.58 / 0.58
 *   512                 0.32 / 0.37   0.52 / 0.55
 *   2048                0.31 / 0.36   0.50 / 0.58
 *   16 x 4096 x 4096    0.29 / 0.30   0.46 / 0.54
 *   64                  0.34 / 0.36   0.56 / 0.59
 *   512                 0.38 / 0.36   0.57 / 0.58
 *
 * v4 has a block of rows pass a stretch of tiles before the next one does, where each tile was passed by all blocks: what a
 * row of outputs gets lies side by side, in pages that are known and lines that L2 fetches ahead. By turns with v3 on such
 * machines, outside of this project, one thread, 512 rows, float32 outputs, time over v3's:
 *   outputs in pages of  4 KiB         2 MiB
 *   2560 x 2560          0.83 to 0.97  0.97 to 1.00
 *   6912 x 2560          0.73 to 0.84  0.95 to 0.96
 *   13824 x 2560         0.77 to 0.84  0.96
 *   4096 x 4096          0.95 to 1.06  0.93 to 0.98
 * and with 128 rows 0.87 to 1.01, 2048 0.78 to 1.02; with 16 threads and 64 to 2048 rows 0.87 to 1.13. Rows of 6912 took
 * 1.06 of the time by stretches of three tiles; with fewer than four each tile is passed by all blocks, as in v3. Stretches of
 * 16 tiles take 0.98 to 1.05 of the time, of four 0.98 to 1.07. `tritmark gate 9398583 71505fc --op ternary_matmul --variant
 * amx --suite FILE`, whose outputs lie in large pages, found no change with 16 threads but two of 27 FASTER.
 *
 * v5 takes weights of other formats, too (amx.h, which says what that gains). tile64's time changed by -0.9 to +1.0 % with one
 * thread (`tritmark gate 2143827 d6844ee --op ternary_matmul --variant amx --suite FILE`, 16, 64 and 512 rows).
 *
 * v1 made a panel of 1024 columns under all masks at once and went over it once for each pair of masks and 32 rows: 0.7
 * of v2. v2 had a panel of up to 64 steps of two masks, 128 KiB, over which all rows of a slab passed. v3 is what is
 * described above but for the stretches; left out, at 64 x 2560 x 2560 where it had 0.56: masks 0.10 more, writing out
 * 0.12, fetching weights ahead 0.02 (which gains 0.02 to 0.07 where they come from memory). No better: 16 rows under all
 * masks only (busy 0.03 less); AHEAD 3 or 5; lines of outputs that stay in L2 fetched; two masks' groups of 8 to 20 steps as
 * a panel in L1, over which all rows pass before the next is made, sums stored and loaded between (in loops outside of this
 * project, 64 rows and more of 2560 x 2560: 0.60 without writing out, and 0.45 with). All threads: 0.6 to 0.8 of v2's time.
 * `tritmark gate 9faa553 c4d2394 --op ternary_matmul --variant amx --suite speed`, on a machine with AMX, compares v2 with
 * v3: 25 to 36 % less time from 8 to 512 rows of 2560 x 2560, with `--threads 16` 17 to 44 %. */
#include "amx.h"

#include "../amx_tiles.h"

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(amx)

#include "amx_outputs.h"
#include "amx_rows.h"

enum {
    GROUPS = STEP / 4, /* in a step */
    BYTES = GROUPS * TM_TILE, /* of a step's weights */
    SPAN = TM_MATMUL_CHUNK / GROUPS, /* most steps between two settlements of sums */
    PLACES = 4, /* steps that the ring has masked groups of, */
    AHEAD = 2, /* made so many before their use, */
    PART = GROUPS / 4, /* so many groups between two products */
    FAR = 1 << 20, /* bytes of outputs from which they are fetched */
    SETTLED = 4, /* steps until sums that were stored are read */
};

typedef uint8_t group[TM_TILE];

/* What a step makes: groups under the masks 3 and 15, under 63, under all three, or nothing. */
typedef enum { LOW, HIGH, ALL, NOTHING } mask_set;

typedef struct work {
    group ring[PLACES][3 * GROUPS];
    group last[PLACES][GROUPS]; /* weights of the last step, where they fill none, of a tile, and of those before it */
    int32_t u[BLOCK][TM_TILE]; /* sums under each mask, of 16 rows of weights */
    int32_t sums[BLOCK][TM_TILE]; /* rows' own, of the spans before */
    float scales[TM_TILE]; /* of the rows of weights whose sums are due, where each has its own */
    const slab *of;
    const uint8_t *tiles; /* weights from the first row of tile `first_tile` on */
    size_t first_tile;
    tm_prefetch fetch;
    uint32_t configured;
    size_t used; /* place in the ring of the next step */
    struct { /* rows whose sums under the masks are there, to be told apart */
        size_t row, end, m, n; /* of the block; its first row in the slab, of the weights */
        int more, whole; /* whether there are spans before; whether none is behind */
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
        config.bytes[t] = TM_TILE_BYTES;
    }
    tm_tile_configure(&config);
}

/* The next pass to make: low and high masks, spans, then what the walk says. */
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

/* Weights of the last step of a tile on the walk, zeros behind them. */
static inline group *last_of(size_t number, work *w) { return w->last[number % PLACES]; }

static __attribute__((noinline)) const uint8_t *make_last(work *w)
{
    group *last = last_of(w->next.at.number, w);
    memset(last, 0, sizeof w->last[0]);
    memcpy(last, w->next.from - BYTES, w->of->rest * TM_TILE);
    return last[0];
}

/* A step in the making. */
typedef struct step {
    const uint8_t *from;
    group *to;
    mask_set masks;
    int fetches;
} step;

/* For `place` in the ring. */
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

/* A quarter of it. */
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

/* 16 of a row's outputs, what tm_matmul_store_by writes; where `scaled`, what tm_four_store does. */
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

/* What the masks' sums of one row that is due say of the rows' own, see avx512.c. */
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
    char *out = (char *)args->out + ((w->of->first + m) * args->N + w->due.n) * size;
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

/* A range of steps, of a tile of weights and a block of rows, within a span that is told apart at once. */
typedef struct range {
    const uint8_t *weights;
    size_t number, m, begin, steps; /* on the walk; row of the slab */
    size_t settles; /* rows that are told apart in a step */
    size_t fetched; /* lines of the block's outputs that are fetched, which are written when the next block passes */
    size_t every; /* so many-th of them */
    const char *out; /* the first */
    size_t out_row; /* bytes between two rows of outputs */
    int lines; /* the logarithm of how many a row has */
    int fetches; /* whether weights are on their first way through */
} range;

/* Two lines of outputs into L2, or the first alone: a line that is under way takes one of the few places that all misses
 * of L1 share, and L2 fetches the other where the next tile's lines follow soon. */
static inline __attribute__((always_inline)) void fetch_outputs(const range *r, size_t s)
{
    const size_t in_row = (size_t)1 << r->lines;
    for (size_t i = 2 * s; i < 2 * s + 2 && i < r->fetched; i += r->every)
        __builtin_prefetch(r->out + (i >> r->lines) * r->out_row + (i & (in_row - 1)) * 64, 0, 2);
}

/* Whether a step's columns are the last ones, which fill none. */
static inline int is_partial(const range *r, size_t s, const work *w)
{
    return w->of->rest && r->begin + s + 1 == w->of->steps;
}

/* Steps of a pass in which another one of the same is made, and not the last: they need nothing of `next`. */
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

/* In the last steps of a pass, lines that its sums are about to be stored to: `lines` of each of `rows` rows. */
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

/* Packed rows, more than 16, under the masks 3 and 15, or 63 and none. */
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

/* A block of rows by a tile, whose sums are told apart meanwhile or by whoever comes next. */
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
            .out = (const char *)s->args->out + ((s->first + m) * s->args->N + t * TM_TILE) * size,
            .out_row = s->args->N * size,
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

/* Pairs of a group of rows and a tile, tiles innermost. */
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

/* The same of weights of another format, a stretch after the other. */
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
