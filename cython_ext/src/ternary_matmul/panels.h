/* ternary_matmul by panels of 16 or 32 rows of weights: shared by the instruction sets. See docs/kernels/panels.md. */
#ifndef TM_PANELS_H
#define TM_PANELS_H

#include "groups.h"

enum {
    TM_PANEL = 16,
    TM_PANEL_MOST = 32,
    TM_PANEL_GRAIN = 1 << 14, /* bytes of activations that justify one more thread for their sums */
};

/* What is prepared from the activations before the kernel starts. `shift`: how many bits codes lie above their
 * place. */
typedef struct tm_panel_start {
    const tm_ternary_matmul_args *args;
    size_t weights; /* of a group */
    unsigned shift;
} tm_panel_start;

/* Multiplies rows [n, n + count) of the weights by rows [first, last) of the activations. */
typedef void (*tm_panel_by)(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last);

/* Runs rows [begin, end) of the weights, in units of `unit`, by panels of `rows`. At most `most` rows of activations
 * pass a panel at once. */
static inline __attribute__((always_inline)) void tm_panels(
    const tm_ternary_matmul_args *args, size_t begin, size_t end, size_t unit, size_t rows, size_t most,
    tm_panel_by panel)
{
    const size_t stop = unit * end < args->N ? unit * end : args->N;
    for (size_t first = 0; first < args->M; first += most) {
        const size_t last = args->M - first < most ? args->M : first + most;
        for (size_t n = unit * begin; n < stop; n += rows)
            panel(args, n, stop - n < rows ? stop - n : rows, first, last);
    }
}

/* Runs `body`, which takes a tm_panel_start, over all rows of activations, unless that was done. With many rows this
 * pays for threads. */
static inline void tm_panel_begin(const tm_ternary_matmul_args *args, size_t weights, unsigned shift, tm_body body)
{
    if (args->begun)
        return;
    tm_panel_start start = {args, weights, shift};
    tm_parallel(args->M, 1, TM_PANEL_GRAIN / args->K + 1, args->run.threads, body, &start);
}

/* Prefetches weights: `done` bytes of each row were used, `part` are used now, the panel starts at `begin`. The next
 * panel's rows are 16 streams, more than the hardware follows, so they are prefetched at the same column; the panel
 * after it, in memory order, into L2. Versions: docs/kernels/panels.md. */
static inline __attribute__((always_inline)) void tm_panel_ahead(
    const uint8_t *const *at, size_t rows, const uint8_t *begin, size_t row, size_t done, size_t part)
{
    for (size_t r = 0; r < rows; r++)
        __builtin_prefetch(at[r] + rows * row);
    const uint8_t *const behind = begin + rows * (2 * row + done);
    for (size_t i = 0; i < rows * part; i += 64)
        __builtin_prefetch(behind + i, 0, 2);
}

#endif
