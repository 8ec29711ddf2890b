/* ternary_matmul of tile80 with NEON of every aarch64 processor: weights are converted to tile64, a stretch of a tile
 * at a time, for the micro kernel of ../neon.c. */
#include "tile80.h"

#include "../tiles.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(neon)
#include "../tiles_neon.h"
#include "arrange_neon.h"

int tm_ternary_matmul_tile80_neon(void *args) { return tm_matmul_run(args, tm_tile80_body, TM_RANK(neon)); }

TM_END
#endif
