#include "formats.h"

#define DECLARED(table) extern TM_MATMUL_FORMAT(table);
#define LISTED(table) &tm_##table##_format,
TM_TABLES_ternary_matmul(DECLARED) TM_MATMUL_FURTHER(DECLARED)

    const tm_matmul_format *const tm_matmul_formats[] = {TM_TABLES_ternary_matmul(LISTED) TM_MATMUL_FURTHER(LISTED)
                                                             NULL};

const tm_matmul_format *tm_matmul_format_named(const char *name)
{
    const tm_matmul_format *const *each = tm_matmul_formats;
    while (*each && strcmp((*each)->name, name))
        each++;
    return *each;
}

/* AMX leaves products with few rows of activations to AVX-512. */
size_t tm_matmul_stack(const tm_matmul_format *format, int32_t rank, size_t M, size_t N, size_t K, size_t threads)
{
    const int tiled = rank == TM_RANK(amx), arranged = format->kernels != tm_ternary_matmul;
    const size_t most = threads * format->stack(tiled ? TM_RANK(avx512) : rank, M);
    if (!tiled || !tm_amx_takes(M, N, K, 1, arranged))
        return most;
    const size_t each = format->group ? tm_amx_panel_stack(M, K, format->group) : tm_amx_stack(K, arranged);
    const size_t tiles = threads * each + tm_amx_room(M, K);
    return tiles > most ? tiles : most;
}
