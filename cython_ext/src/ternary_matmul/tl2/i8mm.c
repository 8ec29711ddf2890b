/* ternary_matmul of tl2 with the int8 matrix products of Armv8.6: weights are converted to tile64, a stretch of a tile
 * at a time, by look-ups of triples and pairs (tbl), for the micro kernel of ../i8mm.c. There are no tables of
 * activations. */
#include "tl2.h"

#include "../tiles.h"

#if TM_ARM
#include "../../intrinsics.h"

TM_BEGIN(i8mm)
#include "../tiles_i8mm.h"
#include "arrange_neon.h"

int tm_ternary_matmul_tl2_i8mm(void *args) { return tm_matmul_run(args, tm_tl2_body, TM_RANK(i8mm)); }

TM_END
#endif
