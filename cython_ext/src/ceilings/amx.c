/* The probes with AMX: those of AVX-512, except for the dot products: 256 of 64 bytes an instruction, of 16 rows by 16
 * columns. Each row and each column is the same 64 bytes, so the 256 results are equal. */
#include "ceilings.h"

#include "../amx_tiles.h"

#include <string.h>

#if TM_X86
#include "../intrinsics.h"

TM_BEGIN(amx)

#include "zmm.h"

/* Four sums, of two tiles by two: a sum is ready for its next product after 52 cycles, and a product starts every
 * 16. */
enum { AT_ONCE = 4 * TM_TILE_ROWS * TM_TILE_ROWS };

static uint64_t dots_at_once(const uint8_t *left_bytes, const uint8_t *right_bytes, size_t rounds)
{
    uint8_t left[TM_TILE_ROWS][TM_TILE_BYTES], right[TM_TILE_ROWS][TM_TILE_BYTES];
    uint32_t sums[TM_TILE_ROWS * TM_TILE_ROWS];
    uint64_t all = 0;
    tm_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < TM_TILE_ROWS; i++) {
        memcpy(left[i], left_bytes, TM_TILE_BYTES);
        for (int n = 0; n < TM_TILE_ROWS; n++)
            memcpy(right[i] + 4 * n, right_bytes + 4 * i, 4);
    }
    for (int t = 0; t < TM_TILE_REGISTERS; t++) {
        config.rows[t] = TM_TILE_ROWS;
        config.bytes[t] = TM_TILE_BYTES;
    }
    tm_tile_configure(&config);
    tm_tile_zero(0);
    tm_tile_zero(1);
    tm_tile_zero(2);
    tm_tile_zero(3);
    tm_tile_load(4, left, TM_TILE_BYTES);
    tm_tile_load(5, left, TM_TILE_BYTES);
    tm_tile_load(6, right, TM_TILE_BYTES);
    tm_tile_load(7, right, TM_TILE_BYTES);
    for (; rounds; rounds--) {
        tm_tile_multiply(0, 4, 6);
        tm_tile_multiply(1, 5, 6);
        tm_tile_multiply(2, 4, 7);
        tm_tile_multiply(3, 5, 7);
    }
#define ADD(t) \
    tm_tile_store(t, sums, TM_TILE_BYTES); \
    for (int i = 0; i < TM_TILE_ROWS * TM_TILE_ROWS; i++) \
    all += sums[i]
    ADD(0);
    ADD(1);
    ADD(2);
    ADD(3);
    tm_tile_release();
    return all;
}
#define DOTS_AT_ONCE

#include "loops.h"

int tm_probe_amx(void *args)
{
    tm_tiles_permitted();
    return tm_probe_run(args, bodies, TM_RANK(amx));
}

TM_END
#endif
