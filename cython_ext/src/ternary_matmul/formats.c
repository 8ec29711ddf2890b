#include "formats.h"

static size_t tile64(size_t N, size_t K) { return (N + TM_TILE - 1) / TM_TILE * ((K + 3) / 4) * TM_TILE; }

const tm_matmul_format tm_matmul_formats[] = {
    {"tile64", tm_ternary_matmul, tile64},
    {NULL, NULL, NULL},
};
