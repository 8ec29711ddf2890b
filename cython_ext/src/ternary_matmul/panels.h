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

/* Have weights fetched: those of the next panel that lie as far along its rows, 16 streams of short rows, which are more than
 * the hardware follows; and of the panel behind it, from farther away, in the order in which they lie. `part` is what is
 * taken of each row now, and `begin` where the panel's begins. */
static inline __attribute__((always_inline)) void tm_panel_ahead(
    const uint8_t *const *rows, const uint8_t *begin, size_t row, size_t done, size_t part)
{
    for (size_t r = 0; r < TM_PANEL; r++)
        __builtin_prefetch(rows[r] + TM_PANEL * row);
    const uint8_t *const behind = begin + TM_PANEL * (2 * row + done);
    for (size_t i = 0; i < TM_PANEL * part; i += 64)
        __builtin_prefetch(behind + i, 0, 2);
}

#endif
