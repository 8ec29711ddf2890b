/* The micro kernel over tile80 with the prefetch that is set for this machine. Included behind an instruction set's
 * tm_tile80_digits_by. */
#ifndef TM_TILE80_PREFETCHED_H
#define TM_TILE80_PREFETCHED_H

static void tm_tile80_digits(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE80])
{
    TM_PREFETCHED(
        tm_weights_prefetch(tm_weights_far), tm_tile80_digits_by(level, ahead, tile, groups, a, lda, rows, acc));
}

#endif
