/* ternary_matmul of tile64 with a scale for each group, in plain C: reference for the other kernels, fallback, and
 * baseline. */
#include "tile64_grouped.h"

#include "../formats.h"
#include "../stacks.h"
#include "../../half.h"

static void micro(const tm_grouped_run *run, int rows, float (*sums)[TM_TILE])
{
    const uint8_t *scales = run->tile;
    for (size_t g = 0; g < run->count; g++, scales += tm_grouped_bytes(run->weights)) {
        const uint8_t *codes = scales + TM_GROUPED_SCALES;
        for (int m = 0; m < rows; m++) {
            const int8_t *a = run->a + (size_t)m * run->lda + g * run->weights;
            for (int r = 0; r < run->there; r++) {
                int32_t part = run->starts[(size_t)m * run->starts_apart + g];
                for (size_t k = 0; k < run->weights; k += 4)
                    for (size_t kk = 0; kk < 4; kk++)
                        part += (codes[k * (TM_TILE / 4) + 4 * (size_t)(r % 16) + kk] >> 2 * (r / 16) & 3) * a[k + kk];
                uint16_t half;
                memcpy(&half, scales + 2 * r, sizeof half);
                const float product = tm_half(half) * (float)part;
                sums[m][r] += product;
            }
        }
    }
}

static void start(const int8_t *x, size_t weights, int32_t *to) { *to = -tm_sum(x, weights); }

static void begins(void *given, size_t begin, size_t end) { tm_grouped_begin_rows(given, begin, end, 1, start); }

static void body(void *args, size_t begin, size_t end)
{
    tm_grouped_tiles(args, begin, end, TM_MATMUL_BLOCK, 1, micro, NULL);
}

int tm_ternary_matmul_tile64_grouped_scalar(void *args)
{
    return tm_grouped_run_by(args, begins, body, TM_RANK(scalar));
}

static size_t bytes_of(size_t N, size_t K, size_t weights)
{
    return K % weights ? 0 : (N + TM_TILE - 1) / TM_TILE * (K / weights) * tm_grouped_bytes(weights);
}

static size_t stack(int32_t rank, size_t M) { return (void)rank, tm_stack_tiles(M); }

TM_TABLE(ternary_matmul_tile64_grouped);

/* One format for each group, and the same kernels. */
#define GROUPED(format, weights) \
    static size_t bytes_##weights(size_t N, size_t K) { return bytes_of(N, K, weights); } \
    static size_t room_##weights(size_t M, size_t K) { return TM_GROUPED_STARTS * tm_groups_room(M, K, weights); } \
    TM_MATMUL_FORMAT(format) = { \
        .name = "tile64_g" #weights, \
        .kernels = tm_ternary_matmul_tile64_grouped, \
        .bytes = bytes_##weights, \
        .group = weights, \
        .room = room_##weights, \
        .stack = stack, \
    }
GROUPED(ternary_matmul_tile64_grouped, 32);
GROUPED(tile64_g64, 64);
GROUPED(tile64_g128, 128);
GROUPED(tile64_g256, 256);
