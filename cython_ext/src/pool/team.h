/* The OpenMP threads of another library in this process, as PyTorch's, which spin on all cores for milliseconds after
 * each of its calls. A call of the pool's that comes meanwhile is shared out over these instead of the pool's own. */
#ifndef TM_TEAM_H
#define TM_TEAM_H

#include <stdint.h>

/* What pool.c alone calls, straight and not through the linker's table. */
#pragma GCC visibility push(hidden)

/* How many threads the calling thread's team has where they run now, and nobody has them work, or where nothing is known
 * of them yet: then a call is shared out over them. 0 where they sleep. */
int32_t tm_team_runs(void);

/* Run body(of, n) on each of so many threads of the team, n counted from 0, which is the calling one. */
void tm_team_run(void (*body)(void *of, int32_t n), void *of, int32_t threads);

#pragma GCC visibility pop

#endif
