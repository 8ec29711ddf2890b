/* ternary_matmul of tq2_0 with AMX int8 (../panels_amx.h); few rows of activations go by AVX-512. */
#include "tq2_0.h"

#if TM_X86
TM_BEGIN(amx)
#include "../panels_amx.h"

int tm_ternary_matmul_tq2_0_amx(void *given)
{
    static const tm_amx_panels tq2_0 = {
        .decode = tm_tq2_0_decoded_avx512,
        .weights = TM_TQ2_0_GROUP,
        .bytes = TM_TQ2_0_BYTES,
        .scale_at = TM_TQ2_0_SCALE,
    };
    tm_ternary_matmul_args *args = given;
    const size_t threads = args->run.threads < 1 ? 1 : (size_t)args->run.threads;
    if (tm_amx_takes(args->M, args->N, args->K, threads, 1))
        return tm_panels_amx(args, &tq2_0);
    tm_ternary_matmul_tq2_0_avx512(args);
    args->run.ran = TM_RANK(amx);
    return 0;
}

TM_END
#endif
