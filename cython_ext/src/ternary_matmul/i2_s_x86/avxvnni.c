/* ternary_matmul of i2_s_x86 with AVX-VNNI, for processors with vpdpbusd and without AVX-512. One row of activations:
 * row after row of the weights (row_after_row.h). Several: as with AVX2 (i2_s_x86_avx2.h).
 *
 * Rates: `python suites/performance/instruction_sets.py --format i2_s_x86 --sets avx2 avxvnni`. Page:
 * docs/kernels/i2_s_x86.md. */
#include "i2_s_x86.h"

#if TM_X86
#include "../../intrinsics.h"

TM_BEGIN(avxvnni)
#include "../dots_dpbusd.h"
#include "../tiles_avxvnni.h"
#include "i2_s_x86_avx2.h"
#include "row_after_row.h"

enum {
    ARRANGED = 12, /* fewest rows of activations for which weights are converted to tile64 */
};

static void body(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    if (args->M == 1)
        tm_matmul_one(args, begin, end, args->K / 4, tm_rows_prefetch(args->K), tm_i2_s_row_after_row);
    else
        tm_matmul_rows_fetched(args, begin, end, args->K / 4, TM_I2_S_MOST, tm_rows_prefetch(args->K), tm_i2_s_micro);
}

int tm_ternary_matmul_i2_s_x86_avxvnni(void *given)
{
    tm_ternary_matmul_args *args = given;
    return args->M < ARRANGED ? tm_matmul_run_by(args, TM_ROWS, body, TM_RANK(avxvnni))
                              : tm_matmul_run(args, tm_i2_s_arranged, TM_RANK(avxvnni));
}

TM_END
#endif
