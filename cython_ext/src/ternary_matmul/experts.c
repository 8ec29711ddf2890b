/* ternary_matmul_experts: shares the products of all experts over the threads, with one fork and join.
 *
 * Algorithm: the rows of an expert are cut into slabs, as in tiles.h. An item is a slab times a tile of weights. It
 * costs its rows, and PASS more for its weights. Threads take ranges of costs, so experts with many rows and experts
 * with one row are balanced: an item belongs to the range in which its costs begin. Adjacent tiles of a slab are one
 * call of the format's kernel, with the parts of the arrays that belong to them. So every instruction set of
 * ternary_matmul works here, and the bits are the same.
 *
 * Limit: as in ternary_matmul; with few rows the weights of the experts that have some.
 *
 * Rates: `tritmark run --suite speed --op ternary_matmul_experts`. Page: docs/kernels/experts.md. */
#include "experts.h"
#include "panels.h"
#include "tiles.h"

enum { PASS = 2 }; /* rows of activations that take as long as a tile's weights take from memory */

static inline size_t rows_of(const tm_experts_args *x, size_t e) { return (size_t)(x->offsets[e + 1] - x->offsets[e]); }

static inline size_t slabs_of(size_t rows) { return (rows + TM_SLAB - 1) / TM_SLAB; }

static inline size_t tiles_of(const tm_experts_args *x) { return (x->N + TM_TILE - 1) / TM_TILE; }

/* Index of the first offset that does not fit; -1 if there is none. */
static int64_t first_bad(const tm_experts_args *x)
{
    if (x->offsets[0] != 0)
        return 0;
    for (size_t e = 0; e < x->E; e++)
        if (x->offsets[e + 1] < x->offsets[e])
            return (int64_t)e + 1;
    return (size_t)x->offsets[x->E] == x->M ? -1 : (int64_t)x->E;
}

/* Runs `count` rows from the expert's row `first` times tiles [tile, end) of its weights; without tiles, computes the
 * initial sums of these rows. */
static void part(const tm_experts_args *x, size_t e, size_t first, size_t count, size_t tile, size_t end)
{
    const size_t m = (size_t)x->offsets[e] + first, n = tile * TM_TILE, group = x->format->group;
    const size_t element = x->kind == TM_OUT_BFLOAT16 ? 2 : 4, stop = end * TM_TILE < x->N ? end * TM_TILE : x->N;
    tm_ternary_matmul_args args = {
        .run = {.ran = -1, .threads = 1, .bad = -1},
        .a = x->a + m * x->lda,
        .weights = x->weights + e * x->expert_bytes + x->format->bytes(TM_TILE, x->K) * tile,
        .act_scale = x->act_scale + m,
        .out = (uint8_t *)x->out + (m * x->N + n) * element,
        .lda = x->lda,
        .M = count,
        .N = stop - n,
        .K = x->K,
        .act_sums = group ? x->act_sums + x->format->room(m, x->K) / sizeof *x->act_sums : NULL,
        .weight_scale = x->weight_scale[e],
        .kind = x->kind,
        .group = group,
        .out_gap = x->N - (stop - n),
        .begun = tile < end,
    };
    x->kernel(&args);
}

/* The last expert whose rows begin at `row` or before. */
static size_t expert_of_row(const tm_experts_args *x, size_t row)
{
    size_t e = 0, above = x->E;
    while (above - e > 1) {
        const size_t middle = (e + above) / 2;
        if ((size_t)x->offsets[middle] <= row)
            e = middle;
        else
            above = middle;
    }
    return e;
}

/* Initial sums of rows [begin, end), by slabs that begin there. */
static void sums(void *given, size_t begin, size_t end)
{
    const tm_experts_args *x = given;
    for (size_t e = expert_of_row(x, begin); e < x->E && (size_t)x->offsets[e] < end; e++) {
        const size_t rows = rows_of(x, e), slabs = slabs_of(rows), before = (size_t)x->offsets[e];
        for (size_t s = 0; s < slabs; s++) {
            const size_t first = rows * s / slabs;
            if (before + first >= begin && before + first < end)
                part(x, e, first, rows * (s + 1) / slabs - first, 0, 0);
        }
    }
}

/* The items whose costs begin in [begin, end). */
static void items(void *given, size_t begin, size_t end)
{
    const tm_experts_args *x = given;
    const size_t tiles = tiles_of(x);
    size_t e = 0;
    while (x->costs[e + 1] <= begin)
        e++;
    for (; e < x->E && x->costs[e] < end; e++) {
        const size_t rows = rows_of(x, e), slabs = slabs_of(rows);
        size_t at = x->costs[e];
        for (size_t s = 0; s < slabs; s++) {
            const size_t first = rows * s / slabs, count = rows * (s + 1) / slabs - first, cost = count + PASS;
            const size_t tile = at < begin ? (begin - at + cost - 1) / cost : 0;
            const size_t behind = at < end ? (end - at + cost - 1) / cost : 0;
            const size_t stop = behind < tiles ? behind : tiles;
            if (tile < stop)
                part(x, e, first, count, tile, stop);
            at += tiles * cost;
        }
    }
}

int tm_experts(void *given)
{
    tm_experts_args *x = given;
    x->run.bad = first_bad(x);
    if (x->run.bad >= 0)
        return tm_finish(&x->run, x->rank);
    x->costs[0] = 0;
    for (size_t e = 0; e < x->E; e++) {
        const size_t rows = rows_of(x, e);
        x->costs[e + 1] = x->costs[e] + tiles_of(x) * (rows + PASS * slabs_of(rows));
    }
    if (x->format->group)
        tm_parallel(x->M, 1, TM_PANEL_GRAIN / x->K + 1, x->run.threads, sums, x);
    /* A tile and one row cost 1 + PASS. */
    const size_t grain = tm_matmul_grain(TM_TILE * x->K / (1 + PASS));
    x->run.used = tm_parallel(x->costs[x->E], 1, grain, x->run.threads, items, x);
    return tm_finish(&x->run, x->rank);
}
