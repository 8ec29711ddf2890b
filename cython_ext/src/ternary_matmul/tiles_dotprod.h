/* The micro kernel over tile64 with dot products; see dotprod.c. Included behind TM_BEGIN. */
#ifndef TM_TILES_DOTPROD_H
#define TM_TILES_DOTPROD_H

#include "dot_neon.h"
#include "tiles.h"

enum { TM_TILES_ROWS = TM_MATMUL_BLOCK };

static __attribute__((unused)) void tm_tiles_micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    switch (rows) {
    case 1: tm_dot_quarters(1, 4, 0, tile, groups, a, lda, acc); break;
    case 2:
        for (int first = 0; first < tm_tile_parts(there, 4); first += 2)
            tm_dot_quarters(2, 2, first, tile, groups, a, lda, acc);
        break;
    case 3:
        for (int first = 0; first < tm_tile_parts(there, 4); first++)
            tm_dot_quarters(3, 1, first, tile, groups, a, lda, acc);
        break;
    default:
        for (int first = 0; first < tm_tile_parts(there, 4); first++)
            tm_dot_quarters(4, 1, first, tile, groups, a, lda, acc);
        break;
    }
}

#endif
