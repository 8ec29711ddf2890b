/* ternary_matmul of tile80 with the dot products of Armv8.2: weights are converted to tile64, a stretch of a tile at a
 * time, for the micro kernel of ../dotprod.c. */
#include "tile80.h"

#include "../tiles.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../tiles_dotprod.h"
#include "arrange_neon.h"

int tm_ternary_matmul_tile80_dotprod(void *args) { return tm_matmul_run(args, tm_tile80_body, TM_RANK(dotprod)); }

TM_END
#endif
