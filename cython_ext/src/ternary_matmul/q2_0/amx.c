/* ternary_matmul of q2_0 with AMX int8 (../panels_amx.h); few rows of activations go by AVX-512. */
#include "q2_0.h"

#if TM_X86
TM_BEGIN(amx)
#include "../panels_amx.h"

enum { FEWEST = 8 }; /* rows of activations, see panels_amx.h */

int tm_ternary_matmul_q2_0_amx(void *given)
{
    static const tm_amx_panels q2_0 = {
        .decode = tm_q2_0_decoded_avx512,
        .weights = TM_Q2_0_GROUP,
        .bytes = TM_Q2_0_BYTES,
        .by_fours = 1,
    };
    tm_ternary_matmul_args *args = given;
    const size_t threads = args->run.threads < 1 ? 1 : (size_t)args->run.threads;
    if (args->M >= FEWEST && tm_amx_takes(args->M, args->N, args->K, threads, 1))
        return tm_panels_amx(args, &q2_0);
    tm_ternary_matmul_q2_0_avx512(args);
    args->run.ran = TM_RANK(amx);
    return 0;
}

TM_END
#endif
