/* Rows of activations for the tiles of AMX: which a thread takes and with what, their sums, and their copies in the order
 * in which tiles are loaded. To be included between TM_BEGIN and TM_END.
 *
 * Copies are made where enough is done with them: tiles of rows that lie far apart come from L2 more slowly than those
 * whose lines follow each other. How PACKS, PAIRS and PAIRS_ARRANGED were chosen: docs/kernels/amx.md. */
#ifndef TM_AMX_ROWS_H
#define TM_AMX_ROWS_H

enum {
    SIDE = TM_TILE_ROWS,
    BLOCK = 2 * SIDE, /* rows of activations at once where they are packed */
    SLAB = TM_AMX_SLAB,
    LEAST = 4 * BLOCK, /* rows of a slab that lie in place, where they are not fewer */
    STEP = TM_TILE_BYTES, /* columns of a tile */
    PAIRS = 8, /* of a group of rows and a tile that a thread should have, so that all end together, */
    PAIRS_ARRANGED = 4, /* or this many where weights become tile64 first, for each group again */
    CHAINS = 4, /* sums of a row of activations side by side */
    PACKS = 1 << 25, /* products for each thread from which it pays to pack activations */
    PACK_GRAIN = 1 << 14, /* bytes of activations that pay for one more thread to pack them, */
    SUM_GRAIN = 1 << 16, /* or to sum them up */
};

/* Rows of activations for one walk over the weights. */
typedef struct slab {
    const tm_ternary_matmul_args *args;
    const tm_amx_format *format;
    size_t first, rows;
    size_t group; /* rows that a thread takes with a tile of weights: whole blocks */
    size_t steps, rest; /* in K, the last one's columns included; groups in that, where they fill no step */
    int by_fours; /* whether of each 64 columns the first of each four are packed together, then the second */
    uint8_t *packed; /* tiles of 16 rows by 64 columns, see packed_row; or NULL: rows lie in place, except */
    int8_t (*last)[STEP]; /* their last columns, where these fill no step; then zeros */
    int32_t act_sum[SLAB];
    double factor[SLAB];
} slab;

/* Bytes of a row of packed activations. */
static inline size_t row_bytes(size_t steps) { return steps * STEP; }

/* The first row that is not of row m's group. */
static inline size_t group_end(const slab *s, size_t m)
{
    const size_t end = (m / s->group + 1) * s->group;
    return end < s->rows ? end : s->rows;
}

/* Rows from row m of the slab on that are multiplied at once. */
static inline size_t block_rows(const slab *s, size_t m)
{
    const size_t left = group_end(s, m) - m, most = s->packed ? BLOCK : SIDE;
    return left < most ? left : most;
}

/* Of an output. */
static inline size_t out_bytes(const slab *s) { return s->args->kind == TM_OUT_BFLOAT16 ? 2 : 4; }

static inline size_t tiles_across(const slab *s) { return (s->args->N + TM_TILE - 1) / TM_TILE; }

static inline size_t tile_bytes(const slab *s) { return tm_amx_tile_bytes(s->args->K); }

static inline size_t stretch_tiles(const slab *s) { return tm_amx_stretch_tiles(s->args->K); }

/* Bytes between two steps of packed rows: their block has one tile, or two side by side. */
static inline size_t step_bytes(size_t rows) { return (rows > SIDE ? 2 : 1) * SIDE * STEP; }

/* The block of rows and the tile that come next in a range of pairs of a group of rows and a tile: of a stretch of tiles
 * all by a block, then by the next block. So what a row of outputs gets in a stretch lies side by side. */
typedef struct walk {
    size_t pair, first, behind, end; /* of the stretch, and of the range */
    size_t m; /* row of the slab */
    size_t number; /* how many came before */
} walk;

static inline void begin_stretch(const slab *s, size_t pair, walk *at)
{
    const size_t across = tiles_across(s), row_end = (pair / across + 1) * across, most = pair + stretch_tiles(s);
    at->pair = at->first = pair;
    at->behind = most < row_end ? most : row_end;
    if (at->behind > at->end)
        at->behind = at->end;
    at->m = pair / across * s->group;
}

/* Whether there is another one, which it is at then. */
static inline int walk_on(const slab *s, walk *at)
{
    const size_t behind = at->m + block_rows(s, at->m);
    at->number++;
    if (++at->pair < at->behind)
        return 1;
    if (behind < group_end(s, at->m)) {
        at->m = behind;
        at->pair = at->first;
        return 1;
    }
    if (at->behind == at->end)
        return 0;
    begin_stretch(s, at->behind, at);
    return 1;
}

/* Where the first columns of row m are. */
static inline uint8_t *packed_row(const slab *s, size_t m)
{
    return s->packed + m / BLOCK * BLOCK * row_bytes(s->steps) + m % BLOCK * STEP;
}

/* 64 columns as they are packed. */
static inline __m512i packed_columns(const slab *s, __m512i v)
{
    if (!s->by_fours)
        return v;
    const __m512i fours = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(quarters, _mm512_shuffle_epi8(v, fours));
}

/* Sums of rows of activations, and their copies. */
static inline void prepare(void *untyped, size_t begin, size_t end)
{
    slab *s = untyped;
    const size_t K = s->args->K, whole = K / STEP, rest = K % STEP;
    const __m512i ones = _mm512_set1_epi8(1);
    for (size_t m = begin; m < end; m++) {
        const int8_t *a = s->args->a + (s->first + m) * s->args->lda;
        const size_t apart = step_bytes(block_rows(s, m / BLOCK * BLOCK));
        uint8_t *to = s->packed ? packed_row(s, m) : NULL;
        __m512i sums[CHAINS];
        for (size_t c = 0; c < CHAINS; c++)
            sums[c] = _mm512_setzero_si512();
        size_t k = 0;
        for (; k + CHAINS <= whole; k += CHAINS)
            for (size_t c = 0; c < CHAINS; c++) {
                const __m512i v = _mm512_loadu_si512(a + (k + c) * STEP);
                sums[c] = _mm512_dpbusd_epi32(sums[c], ones, v);
                if (to)
                    _mm512_store_si512(to + (k + c) * apart, packed_columns(s, v));
            }
        for (; k < whole; k++) {
            const __m512i v = _mm512_loadu_si512(a + k * STEP);
            sums[0] = _mm512_dpbusd_epi32(sums[0], ones, v);
            if (to)
                _mm512_store_si512(to + k * apart, packed_columns(s, v));
        }
        if (rest) {
            int8_t *last = to ? (int8_t *)to + whole * apart : s->last[m];
            memset(last, 0, STEP);
            memcpy(last, a + whole * STEP, rest);
            sums[0] = _mm512_dpbusd_epi32(sums[0], ones, _mm512_loadu_si512(last));
        }
        for (size_t c = 1; c < CHAINS; c++)
            sums[0] = _mm512_add_epi32(sums[0], sums[c]);
        s->act_sum[m] = _mm512_reduce_add_epi32(sums[0]);
        s->factor[m] = tm_matmul_factor(s->args, s->first + m);
    }
}

/* Most rows of a slab, so that as few slabs as hold `most` have nearly as many each: whole blocks. */
static inline size_t even_rows(size_t M, size_t most)
{
    const size_t slabs = (M + most - 1) / most, even = (M + slabs - 1) / slabs;
    return (even + BLOCK - 1) / BLOCK * BLOCK;
}

/* The same; and whether they are packed. */
static inline size_t slab_rows(const tm_ternary_matmul_args *args, size_t threads, int *packed)
{
    const size_t fit = tm_amx_packed_rows(args->K), in_place = TM_AMX_PACKED / args->K;
    *packed = fit && args->M * args->N >= PACKS / args->K * threads;
    return even_rows(args->M, *packed ? fit : in_place < LEAST ? LEAST : in_place < SLAB ? in_place : SLAB);
}

/* Rows of a group, so that each thread has so many pairs of one and what there is `across` of weights. */
static inline size_t group_rows(const slab *s, size_t threads, size_t across, size_t pairs)
{
    const size_t unit = s->packed ? BLOCK : SIDE, blocks = (s->rows + unit - 1) / unit;
    const size_t wanted = threads > 1 ? (pairs * threads + across - 1) / across : 1;
    return (blocks + wanted - 1) / wanted * unit;
}

#endif
