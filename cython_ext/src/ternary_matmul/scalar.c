/* ternary_matmul of tile64 in plain C: reference for the other kernels, fallback, and baseline. */
#include "formats.h"
#include "stacks.h"
#include "tiles.h"

static void micro(
    const uint8_t *tile, size_t groups, const int8_t *a, size_t lda, int rows, int there, int32_t (*acc)[TM_TILE])
{
    for (int m = 0; m < rows; m++)
        for (size_t k = 0; k < groups; k++) {
            const uint8_t *bytes = tile + k * TM_TILE;
            const int8_t *four = a + (size_t)m * lda + 4 * k;
            for (int g = 0; g < 4; g++)
                for (int r = 0; r < 16 && 16 * g + r < there; r++) {
                    int32_t sum = 0;
                    for (int kk = 0; kk < 4; kk++)
                        sum += ((bytes[4 * r + kk] >> (2 * g)) & 3) * four[kk];
                    acc[m][16 * g + r] += sum;
                }
        }
}

static void body(void *args, size_t begin, size_t end) { tm_matmul_tiles(args, begin, end, TM_MATMUL_BLOCK, micro); }

int tm_ternary_matmul_scalar(void *args) { return tm_matmul_run(args, body, TM_RANK(scalar)); }

static size_t bytes(size_t N, size_t K) { return (N + TM_TILE - 1) / TM_TILE * ((K + 3) / 4) * TM_TILE; }
static size_t stack(int32_t rank, size_t M) { return (void)rank, tm_stack_tiles(M); }

TM_TABLE(ternary_matmul);

TM_MATMUL_FORMAT(ternary_matmul) = {
    .name = "tile64",
    .kernels = tm_ternary_matmul,
    .bytes = bytes,
    .stack = stack,
};
