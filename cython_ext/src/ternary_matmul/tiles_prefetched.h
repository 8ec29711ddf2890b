/* The micro kernel over tile64, with weights fetched ahead as this machine's choice says. Included behind
 * tm_tiles_micro_by, of each instruction set its own. */
#ifndef TM_TILES_PREFETCHED_H
#define TM_TILES_PREFETCHED_H

static void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE])
{
    const tm_prefetch fetch = tm_weights_prefetch();
    switch (fetch.level) {
    case TM_PREFETCH_NONE: tm_tiles_micro_by(TM_PREFETCH_NONE, 0, tile, groups, a, lda, rows, acc); break;
    case TM_PREFETCH_L1: tm_tiles_micro_by(TM_PREFETCH_L1, fetch.bytes, tile, groups, a, lda, rows, acc); break;
    case TM_PREFETCH_L2: tm_tiles_micro_by(TM_PREFETCH_L2, fetch.bytes, tile, groups, a, lda, rows, acc); break;
    }
}

#endif
