/* ternary_matmul of tile80 in plain C: reference for the other kernels, fallback, and baseline. */
#include "tile80.h"

#include "../formats.h"
#include "../stacks.h"

static void micro(const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int32_t (*acc)[TM_TILE80])
{
    for (int m = 0; m < rows; m++)
        for (size_t k = 0; k < groups; k++)
            for (int r = 0; r < 16; r++)
                for (int kk = 0; kk < 4; kk++) {
                    unsigned q = tile[k * TM_TILE + (size_t)(4 * r + kk)];
                    for (int n = 0; n < TM_TILE80_DIGITS; n++) {
                        acc[m][16 * n + r] += (int32_t)(3 * q >> 8) * a[(size_t)m * lda + 4 * k + (size_t)kk];
                        q = 3 * q & 255;
                    }
                }
}

static void body(void *args, size_t begin, size_t end) { tm_tile80_tiles(args, begin, end, TM_TILE80_FEW, micro); }

int tm_ternary_matmul_tile80_scalar(void *args) { return tm_matmul_run_by(args, TM_TILE80, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return (N + TM_TILE80 - 1) / TM_TILE80 * ((K + 3) / 4) * TM_TILE; }

/* Few rows of activations are multiplied with the digits directly; none by sets of aarch64. */
static size_t stack(int32_t rank, size_t M)
{
    const int directly = rank == TM_RANK(scalar) || rank == TM_RANK(avxvnni) || rank == TM_RANK(avx512);
    const size_t few = directly ? TM_TILE80_FEW : rank == TM_RANK(avx2) ? TM_TILE80_FEW_AVX2 : 0;
    if (rank == TM_RANK(scalar) || M <= few)
        return sizeof(int32_t) * TM_TILE80 * tm_stack_least(M, few);
    return tm_stack_arranged(M);
}

TM_TABLE(ternary_matmul_tile80);

TM_MATMUL_FORMAT(ternary_matmul_tile80) = {
    .name = "tile80",
    .kernels = tm_ternary_matmul_tile80,
    .bytes = bytes,
    .stack = stack,
};
