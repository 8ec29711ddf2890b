#include <stdint.h>

/* Tiles of BM rows and BK columns, in which bm rows lie side by side. */
typedef struct {
    int64_t BM, BK, bm;
} layout;

/* The layout of bitnet.cpp's presets for their shapes, and that of the rule of FORMATS["tl1"] for all others; put
 * in its place what your weights were packed with. */
DECODE layout layout_of(int64_t N, int64_t K)
{
    const int64_t presets[][5] = {
        {1536, 1536, 128, 64, 64},   {3200, 8640, 160, 64, 32}, {3200, 3200, 320, 128, 64}, {8640, 3200, 320, 64, 32},
        {14336, 4096, 256, 128, 64}, {1024, 4096, 128, 64, 64}, {4096, 4096, 128, 64, 32},
    };
    for (int i = 0; i < (int)(sizeof presets / sizeof *presets); i++)
        if (presets[i][0] == N && presets[i][1] == K) {
            layout found = {presets[i][2], presets[i][3], presets[i][4]};
            return found;
        }
    layout by_rule = {256, 128, 32};
    while (N % by_rule.BM != 0)
        by_rule.BM /= 2;
    while (K % by_rule.BK != 0)
        by_rule.BK /= 2;
    return by_rule;
}

/* Weight (n, k) of tl1: -1, 0 or 1. Tiles, row by row, are cut into bm rows, these into 256 / bm columns, these
 * into 16 rows, these into 4 columns, of which each row has a byte. Its high nibble has the first two columns, as
 * the field 3 * (w0 + 1) + w1 + 1. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    layout at = layout_of(N, K);
    int64_t by = 256 / at.bm, r = n % at.BM, c = k % at.BK;
    int64_t byte = n / at.BM * (K / at.BK) + k / at.BK;
    byte = byte * (at.BM / at.bm) + r / at.bm;
    byte = byte * (at.BK / by) + c / by;
    byte = byte * (at.bm / 16) + r % at.bm / 16;
    byte = byte * (by / 4) + c % by / 4;
    int pair = weights[byte * 16 + r % 16] >> (k % 4 < 2 ? 4 : 0) & 15;
    return (k % 2 == 0 ? pair / 3 : pair % 3) - 1;
}

#include "one_scale.h"
