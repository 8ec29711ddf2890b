/* ternary_matmul of tl1 in plain C: reference for the other kernels, fallback, and baseline. A table's entries are 9
 * int16. */
#include "tl1.h"

#include "../formats.h"
#include "../stacks.h"

static void fill(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t each = tm_tl1_each(args);
    for (size_t t = begin; t < end; t++) {
        int16_t *table = (int16_t *)(args->tables + t * TM_TL1_TABLES);
        const int8_t *a = args->a + t / each * args->lda + t % each * TM_TL1_COLUMNS;
        for (size_t k = 0; k < TM_TL1_COLUMNS; k += 2, table += 16)
            for (int field = 0; field < 9; field++)
                table[field] = (int16_t)((field / 3 - 1) * a[k] + (field % 3 - 1) * a[k + 1]);
    }
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t by = 256 / args->bm;
    for (size_t k = 0; k < args->K; k += args->BK) {
        const uint8_t *bytes = tm_tl1_at(args, n, k / args->BK);
        for (size_t first = 0; first < rows; first += args->bm)
            for (size_t block = k; block < k + args->BK; block += by)
                for (size_t row = first; row < first + args->bm; row += 16)
                    for (size_t four = block; four < block + by; four += 4, bytes += 16)
                        for (size_t m = 0; m < args->M; m++) {
                            const int16_t *table =
                                (const int16_t *)(args->tables + m * tm_tl1_row(args->K)) + four / 2 * 16;
                            for (size_t r = 0; r < 16; r++)
                                acc[m][row + r] += table[bytes[r] >> 4] + table[16 + (bytes[r] & 15)];
                        }
    }
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

int tm_ternary_matmul_tl1_scalar(void *args)
{
    return tm_lut_run(args, tm_tl1_each(args), TM_TL1_GRAIN, fill, body, TM_RANK(scalar));
}

static size_t bytes(size_t N, size_t K) { return N * K / 4; }
static size_t stack(int32_t rank, size_t M) { return tm_stack_lut(rank, M); }

TM_TABLE(ternary_matmul_tl1);

TM_MATMUL_FORMAT(ternary_matmul_tl1) = {
    .name = "tl1",
    .kernels = tm_ternary_matmul_tl1,
    .bytes = bytes,
    .tables = tm_tl1_tables,
    .stack = stack,
};
