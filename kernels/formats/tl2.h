#include <stdint.h>

/* Tiles of BM rows and BK columns, in which 32 rows lie side by side. */
typedef struct {
    int64_t BM, BK;
} layout;

/* The layout of bitnet.cpp's presets for their shapes, and that of the rule of FORMATS["tl2"] for all others; put
 * in its place what your weights were packed with. */
DECODE layout layout_of(int64_t N, int64_t K)
{
    const int64_t presets[][4] = {
        {1536, 1536, 128, 192}, {3200, 8640, 160, 96},  {3200, 3200, 320, 96},
        {8640, 3200, 320, 96},  {4096, 14336, 128, 96}, {4096, 4096, 128, 96},
    };
    for (int i = 0; i < (int)(sizeof presets / sizeof *presets); i++)
        if (presets[i][0] == N && presets[i][1] == K) {
            layout found = {presets[i][2], presets[i][3]};
            return found;
        }
    layout by_rule = {256, 96};
    while (N % by_rule.BM != 0)
        by_rule.BM /= 2;
    return by_rule;
}

/* Weight (n, k) of tl2: -1, 0 or 1. Columns in whole tiles are triples v = 9 * w0 + 3 * w1 + w2: first the nibbles
 * |v|, then the signs as bits, and behind them the other columns as pairs 3 * (w0 + 1) + w1 + 1 in nibbles. Of 32
 * rows side by side 8 after 8 come in the order 0, 2, 1, 3; the first of two nibbles is the high one. */
DECODE int code(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    layout at = layout_of(N, K);
    int64_t tripled = K - K % at.BK, r = n % at.BM, place = r % 16 / 8 * 16 + r % 32 / 16 * 8 + r % 8;
    if (k >= tripled) {
        int64_t c = k - tripled, byte = n / at.BM * ((K - tripled) / 32) + c / 32;
        byte = (byte * (at.BM / 32) + r / 32) * 8 + c % 32 / 4;
        int pair = weights[N * tripled / 6 + N * tripled / 24 + byte * 32 + place] >> (c % 4 < 2 ? 4 : 0) & 15;
        return (c % 2 == 0 ? pair / 3 : pair % 3) - 1;
    }
    int64_t c = k % at.BK, rows = (n / at.BM * (tripled / at.BK) + k / at.BK) * (at.BM / 32) + r / 32;
    int v = weights[(rows * (at.BK / 6) + c / 6) * 32 + place] >> (c % 6 < 3 ? 4 : 0) & 15;
    const uint8_t *word = weights + N * tripled / 6 + 2 * ((rows * (at.BK / 24) + c / 24) * 16 + r % 16);
    int bit = (int)(15 - (2 * (c % 24 / 3) + r % 32 / 16));
    int u = 13 + ((word[0] | word[1] << 8) >> bit & 1 ? -v : v);
    return (c % 3 == 0 ? u / 9 : c % 3 == 1 ? u / 3 % 3 : u % 3) - 1;
}

#include "one_scale.h"
