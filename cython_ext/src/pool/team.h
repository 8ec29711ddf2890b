/* The OpenMP threads of another library in this process, such as PyTorch's, which spin on all cores for milliseconds
 * after each of its calls. A call of the pool during this time is shared out over them instead of the pool's own
 * threads. */
#ifndef TM_TEAM_H
#define TM_TEAM_H

#include <stdint.h>

/* For pool.c only: called directly and not through the linker's table. */
#pragma GCC visibility push(hidden)

/* Size of the calling thread's team if its threads run now and have no work, or if nothing is known of them yet: then a
 * call is shared out over them. 0 if they sleep. */
int32_t tm_team_runs(void);

/* Runs body(of, n) on each of `threads` threads of the team; n = 0 is the calling one. */
void tm_team_run(void (*body)(void *of, int32_t n), void *of, int32_t threads);

#pragma GCC visibility pop

#endif
