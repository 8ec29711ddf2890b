/* ternary_matmul of tile64 in plain C: reference for the other kernels, fallback, and baseline. */
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

TM_TABLE(ternary_matmul);
