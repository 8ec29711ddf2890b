/* ternary_matmul of tl1 with the dot products of Armv8.2: weights are converted to tile64, a stretch of a tile at a
 * time, by look-ups of pairs (tbl), for the micro kernel of ../dotprod.c. There are no tables of activations. */
#include "tl1.h"

#include "../tiles.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../tiles_dotprod.h"
#include "arrange_neon.h"

int tm_ternary_matmul_tl1_dotprod(void *args) { return tm_matmul_run(args, tm_tl1_body, TM_RANK(dotprod)); }

TM_END
#endif
