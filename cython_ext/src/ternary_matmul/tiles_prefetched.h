/* The micro kernel over tile64 with the prefetch that is set for this machine. Included behind an instruction set's
 * tm_tiles_micro_by. */
#ifndef TM_TILES_PREFETCHED_H
#define TM_TILES_PREFETCHED_H

static __attribute__((unused)) void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    TM_PREFETCHED(tm_tiles_prefetch(), tm_tiles_micro_by(level, ahead, tile, groups, a, lda, rows, there, acc));
}

#endif
