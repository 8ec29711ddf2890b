/* Rows of activations for AMX: their division among threads, their sums, and copies packed in the order in which tiles
 * are loaded. Included between TM_BEGIN and TM_END.
 *
 * Copies are made if enough products use them: a tile whose rows lie far apart comes from L2 more slowly than one of
 * consecutive lines. How PACKS, PAIRS and PAIRS_ARRANGED were chosen: docs/kernels/amx.md. */
#ifndef TM_AMX_ROWS_H
#define TM_AMX_ROWS_H

enum {
    SIDE = TM_TILE_ROWS,
    BLOCK = 2 * SIDE, /* rows of activations at once, if packed */
    SLAB = TM_AMX_SLAB,
    LEAST = 4 * BLOCK, /* rows of a slab in place, if there are so many */
    STEP = TM_TILE_BYTES, /* columns of a tile */
    PAIRS = 8, /* pairs of a row group and a tile for each thread, so that all threads end together */
    PAIRS_ARRANGED = 4, /* the same if weights are converted to tile64 first, again for each row group */
    CHAINS = 4, /* independent sums of a row of activations */
    PACKS = 1 << 25, /* products for each thread that justify packing */
    PACK_GRAIN = 1 << 14, /* bytes of activations that justify one more thread for packing */
    SUM_GRAIN = 1 << 16, /* the same for sums alone */
};

/* Rows of activations for one walk over the weights. */
typedef struct slab {
    const tm_ternary_matmul_args *args;
    const tm_amx_format *format;
    size_t first, rows;
    size_t group; /* rows that a thread takes with a tile of weights: whole blocks */
    size_t steps, rest; /* steps in K, an incomplete last one included; groups in that one, 0 if none is incomplete */
    /* whether of each 64 columns the first of each four are packed together, then the second, and so on */
    int by_fours;
    uint8_t *packed; /* tiles of 16 rows by 64 columns, see packed_row; or NULL: rows lie in place, except `last` */
    int8_t (*last)[STEP]; /* their last columns, if these are fewer than a step, then zeros */
    int32_t act_sum[SLAB];
    double factor[SLAB];
} slab;

/* Bytes of a row of packed activations. */
static inline size_t row_bytes(size_t steps) { return steps * STEP; }

/* The first row past row m's group. */
static inline size_t group_end(const slab *s, size_t m)
{
    const size_t end = (m / s->group + 1) * s->group;
    return end < s->rows ? end : s->rows;
}

/* How many rows, from row m of the slab, are multiplied at once. */
static inline size_t block_rows(const slab *s, size_t m)
{
    const size_t left = group_end(s, m) - m, most = s->packed ? BLOCK : SIDE;
    return left < most ? left : most;
}

/* Bytes of an output. */
static inline size_t out_bytes(const slab *s) { return s->args->kind == TM_OUT_BFLOAT16 ? 2 : 4; }

static inline size_t tiles_across(const slab *s) { return (s->args->N + TM_TILE - 1) / TM_TILE; }

static inline size_t tile_bytes(const slab *s) { return tm_amx_tile_bytes(s->args->K); }

static inline size_t stretch_tiles(const slab *s) { return tm_amx_stretch_tiles(s->args->K); }

/* Bytes between two steps of packed rows: a block has one tile, or two side by side. */
static inline size_t step_bytes(size_t rows) { return (rows > SIDE ? 2 : 1) * SIDE * STEP; }

/* Iterates over pairs of a row group and a tile: a block takes all tiles of a stretch, then the next block does. So the
 * outputs of a row in a stretch are contiguous. */
typedef struct walk {
    size_t pair, first, behind, end; /* of the stretch, and of the range */
    size_t m; /* row of the slab */
    size_t number; /* pairs visited before */
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

/* Advances to the next pair; returns 0 at the end. */
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

/* Address of the first columns of row m. */
static inline uint8_t *packed_row(const slab *s, size_t m)
{
    return s->packed + m / BLOCK * BLOCK * row_bytes(s->steps) + m % BLOCK * STEP;
}

/* 64 columns in the order in which they are packed. */
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

/* Most rows of a slab, in whole blocks, so that slabs of at most `most` rows are about equal. */
static inline size_t even_rows(size_t M, size_t most)
{
    const size_t slabs = (M + most - 1) / most, even = (M + slabs - 1) / slabs;
    return (even + BLOCK - 1) / BLOCK * BLOCK;
}

/* The same; and whether the rows are packed. */
static inline size_t slab_rows(const tm_ternary_matmul_args *args, size_t threads, int *packed)
{
    const size_t fit = tm_amx_packed_rows(args->K), in_place = TM_AMX_PACKED / args->K;
    *packed = fit && args->M * args->N >= PACKS / args->K * threads;
    return even_rows(args->M, *packed ? fit : in_place < LEAST ? LEAST : in_place < SLAB ? in_place : SLAB);
}

/* Rows of a group, so that each thread has `pairs` pairs of a group and one of `across` pieces of weights. */
static inline size_t group_rows(const slab *s, size_t threads, size_t across, size_t pairs)
{
    const size_t unit = s->packed ? BLOCK : SIDE, blocks = (s->rows + unit - 1) / unit;
    const size_t wanted = threads > 1 ? (pairs * threads + across - 1) / across : 1;
    return (blocks + wanted - 1) / wanted * unit;
}

#endif
