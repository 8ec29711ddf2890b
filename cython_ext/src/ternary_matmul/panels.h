/* ternary_matmul by panels of 16 or 32 rows of weights: what the instruction sets share. */
#ifndef TM_PANELS_H
#define TM_PANELS_H

#include "groups.h"

enum {
    TM_PANEL = 16,
    TM_PANEL_MOST = 32,
    TM_PANEL_GRAIN = 1 << 14, /* bytes of activations that pay for one more thread to sum them up */
};

/* What kernels know of the activations before they begin; `shift`: how far codes lie above their place. */
typedef struct tm_panel_start {
    const tm_ternary_matmul_args *args;
    size_t weights; /* of a group */
    unsigned shift;
} tm_panel_start;

/* Rows [n, n + count) of the weights with rows [first, last) of the activations. */
typedef void (*tm_panel_by)(const tm_ternary_matmul_args *args, size_t n, size_t count, size_t first, size_t last);

/* Rows [begin, end) of the weights, in units of `unit`, by panels of `rows`; `most` rows of activations between two walks
 * over a panel. */
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

/* `body`, which takes a tm_panel_start, over all rows of activations. Time over that of before, when the caller's thread did
 * this alone, 2560 x 2560, 16 threads of an Intel Xeon, by turns outside of this project: tq2_0, tq1_0 and q2_0 with AVX-512
 * 0.99, 0.98 and 0.82 at 128 rows, 0.90, 0.83 and 0.74 at 512, with AVX2 0.94, 0.94 and 0.89 at 512; one thread 0.97 to 1.02. */
static inline void tm_panel_begin(const tm_ternary_matmul_args *args, size_t weights, unsigned shift, tm_body body)
{
    tm_panel_start start = {args, weights, shift};
    tm_parallel(args->M, 1, TM_PANEL_GRAIN / args->K + 1, args->run.threads, body, &start);
}

/* Have weights fetched. `done` bytes of each row were taken, `part` are now, and `begin` is where the panel begins.
 *
 * Story (Zen 4, 2560 x 2560, weights from memory, AVX-512; `tritmark run --suite speed --variant avx512`, in processes by
 * turns):
 *   v1  what lies as far along the rows of the next panel, 16 streams of short rows, which are more than the hardware
 *       follows. Two threads, M = 16: tq2_0 341 us, tq1_0 521, q2_0 507; before 626, 706 and 553
 *   v2  and from farther away the panel behind it, in the order in which it lies. One thread, least of three: M = 4: tq2_0
 *       197 us, before 316, q2_0 271, before 330; M = 16: tq2_0 605, before 666, q2_0 777, before 826, tq1_0 777, before 794
 * The next panel in that order alone: as good from memory, but in the caches M = 2 took 13 % longer from q2_0. */
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
