/* ternary_matmul of tile80 in plain C: reference for the other kernels, fallback, and baseline. */
#include "tile80.h"

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

TM_TABLE(ternary_matmul_tile80);
