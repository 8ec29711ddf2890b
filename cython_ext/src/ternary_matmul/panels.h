/* ternary_matmul by panels of 16 rows of weights: what the instruction sets share. */
#ifndef TM_PANELS_H
#define TM_PANELS_H

#include "groups.h"

enum { TM_PANEL = 16 };

/* Rows [n, n + count) of the weights with rows [first, last) of the activations. */
typedef void (*tm_panel_by)(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last);

/* Rows [begin, end) of the weights, in units of `unit`; `most` rows of activations between two walks over a panel. */
static inline __attribute__((always_inline)) void tm_panels(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t unit, size_t most, tm_panel_by panel)
{
    const size_t stop = unit * end < args->N ? unit * end : args->N;
    for (size_t first = 0; first < args->M; first += most) {
        const size_t last = args->M - first < most ? args->M : first + most;
        for (size_t n = unit * begin; n < stop; n += TM_PANEL)
            panel(args, n, stop - n < TM_PANEL ? stop - n : TM_PANEL, first, last);
    }
}

/* Where the rows of a panel begin; past the last row the first again, which nobody stores. */
static inline __attribute__((always_inline)) void tm_panel_rows(
    const tm_ternary_matmul_args *args, size_t n, size_t count, size_t row, const uint8_t *at[TM_PANEL])
{
    for (size_t r = 0; r < TM_PANEL; r++)
        at[r] = args->weights + (n + (r < count ? r : 0)) * row;
}

/* Have the same groups of the next panel fetched: 16 streams of short rows are more than the hardware follows. Zen 4, two
 * threads, 16 x 2560 x 2560, weights from memory: tq2_0 341 us, tq1_0 521, q2_0 507 (`tritmark run --suite speed --variant
 * avx512 --threads 2`); before, in another process, 626, 706 and 553. */
static inline __attribute__((always_inline)) void tm_panel_ahead(const uint8_t *const *rows, size_t row)
{
    for (size_t r = 0; r < TM_PANEL; r++)
        __builtin_prefetch(rows[r] + TM_PANEL * row);
}

#endif
