/* The kernel of an instruction set. Included behind its micro kernel tm_grouped_micro_by, which takes up to
 * TM_TILES_ROWS rows of activations, and tm_grouped_start, which writes TM_GROUPED_SUMS int32. TM_GROUPED_LAST is what
 * finishes the sums of a row, or NULL. */
#ifndef TM_GROUPED_LAST
#define TM_GROUPED_LAST NULL
#endif

static void micro(const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    TM_PREFETCHED(tm_tiles_prefetch(), tm_grouped_micro_by(level, ahead, run, rows, sums));
}

static void begins(void *given, size_t begin, size_t end)
{
    tm_grouped_begin_rows(given, begin, end, TM_GROUPED_SUMS, tm_grouped_start);
}

static void body(void *args, size_t begin, size_t end)
{
    tm_grouped_tiles(args, begin, end, TM_TILES_ROWS, TM_GROUPED_SUMS, micro, TM_GROUPED_LAST);
}
