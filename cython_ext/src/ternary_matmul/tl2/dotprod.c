/* ternary_matmul of tl2 with the dot products of Armv8.2: weights are converted to tile64, a stretch of a tile at a
 * time, by look-ups of triples and pairs (tbl), for the micro kernel of ../dotprod.c. There are no tables of
 * activations. */
#include "tl2.h"

#include "../tiles.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(dotprod)
#include "../tiles_dotprod.h"
#include "arrange_neon.h"

int tm_ternary_matmul_tl2_dotprod(void *args) { return tm_matmul_run(args, tm_tl2_body, TM_RANK(dotprod)); }

TM_END
#endif
