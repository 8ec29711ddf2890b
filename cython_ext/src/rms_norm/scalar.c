/* rms_norm in plain C: for processors without the other sets. */
#include "rms_norm.h"

static void body(void *args, size_t begin, size_t end) { tm_norm_rows(args, begin, end); }

int tm_rms_norm_scalar(void *args) { return tm_norm_run(args, body, TM_RANK(scalar)); }

TM_TABLE(rms_norm);
