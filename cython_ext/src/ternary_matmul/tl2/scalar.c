/* ternary_matmul of tl2 in plain C: reference for the other kernels, fallback, and baseline. A table's entries are
 * int16: 14 of a triple, 9 of a pair. */
#include "tl2.h"

#include "../formats.h"
#include "../stacks.h"

enum { ENTRIES = 16 };

/* Position of the table of column k, with which a triple or a pair begins. */
static size_t triple_at(size_t k) { return k / 3 * ENTRIES; }
static size_t pair_at(size_t tripled, size_t k) { return triple_at(tripled) + k / 2 * ENTRIES; }

static void fill_triple(const int8_t *a, int16_t *table)
{
    for (int v = 0; v < 14; v++) {
        const int w0 = (v + 4) / 9, rest = v - 9 * w0, w1 = (rest + 4) / 3 - 1, w2 = rest - 3 * w1;
        table[v] = (int16_t)(w0 * a[0] + w1 * a[1] + w2 * a[2]);
    }
}

static void fill_pair(const int8_t *a, int16_t *table)
{
    for (int field = 0; field < 9; field++)
        table[field] = (int16_t)((field / 3 - 1) * a[0] + (field % 3 - 1) * a[1]);
}

static void fill(void *given, size_t begin, size_t end)
{
    const tm_ternary_matmul_args *args = given;
    const size_t each = tm_tl2_each(args), tripled = tm_tl2_tripled(args), triples = tripled / TM_TL2_TRIPLES;
    for (size_t t = begin; t < end; t++) {
        const size_t nth = t % each;
        const int8_t *a = args->a + t / each * args->lda;
        int16_t *tables = (int16_t *)(args->tables + t / each * tm_tl2_row(args));
        if (nth < triples)
            for (size_t k = nth * TM_TL2_TRIPLES; k < (nth + 1) * TM_TL2_TRIPLES; k += 3)
                fill_triple(a + k, tables + triple_at(k));
        else
            for (size_t k = (nth - triples) * TM_TL2_PAIRS; k < (nth - triples + 1) * TM_TL2_PAIRS; k += 2)
                fill_pair(a + tripled + k, tables + pair_at(tripled, k));
    }
}

/* The row of byte i, of 32: blocks of 8 lie in the order 0, 2, 1, 3. */
static size_t row_of(size_t i) { return (i & 7) | (i & 8) << 1 | (i & 16) >> 1; }

/* Adds the entries that 32 bytes look up. `tables` are of the high nibbles, then of the low ones; `signs` is NULL for
 * pairs. */
static void add(const uint8_t *bytes, const uint8_t *signs, size_t triple, const int16_t *tables, int32_t *acc)
{
    for (size_t i = 0; i < TM_TL2_ROWS; i++) {
        const size_t r = row_of(i);
        int one = tables[bytes[i] >> 4], two = tables[ENTRIES + (bytes[i] & 15)];
        if (signs) {
            const int word = signs[2 * (r % 16)] | signs[2 * (r % 16) + 1] << 8;
            const size_t top = 15 - 2 * triple - r / 16;
            one = word >> top & 1 ? -one : one;
            two = word >> (top - 2) & 1 ? -two : two;
        }
        acc[r] += one + two;
    }
}

static void sums(const tm_ternary_matmul_args *args, size_t n, size_t rows, int32_t (*acc)[TM_LUT_SUMS])
{
    const size_t tripled = tm_tl2_tripled(args);
    for (size_t m = 0; m < args->M; m++) {
        const int16_t *tables = (const int16_t *)(args->tables + m * tm_tl2_row(args));
        for (size_t row = 0; row < rows; row += TM_TL2_ROWS) {
            for (size_t k = 0; k < tripled; k += args->BK) {
                const uint8_t *bytes = tm_tl2_nibbles(args, n + row, k), *signs = tm_tl2_signs(args, n + row, k);
                for (size_t c = 0; c < args->BK; c += 6, bytes += 32)
                    add(bytes, signs + c / 24 * 32, c % 24 / 3, tables + triple_at(k + c), acc[m] + row);
            }
            for (size_t k = 0; k < args->K - tripled; k += TM_TL2_PAIRED) {
                const uint8_t *bytes = tm_tl2_pairs(args, n + row, k);
                for (size_t c = 0; c < TM_TL2_PAIRED; c += 4, bytes += 32)
                    add(bytes, NULL, 0, tables + pair_at(tripled, k + c), acc[m] + row);
            }
        }
    }
}

static void body(void *args, size_t begin, size_t end) { tm_lut_body(args, begin, end, sums); }

int tm_ternary_matmul_tl2_scalar(void *args)
{
    return tm_lut_run(args, tm_tl2_each(args), TM_TL2_GRAIN, fill, body, TM_RANK(scalar));
}

/* The original's formula, whose last bytes are padding; rounded down, also below 0. */
static size_t bytes(size_t N, size_t K)
{
    const ptrdiff_t thirds = ((ptrdiff_t)K - 256) * (ptrdiff_t)N, eighths = (thirds - (thirds % 3 + 3) % 3) / 3 * 5;
    return (size_t)((eighths - (eighths % 8 + 8) % 8) / 8) + 64 * N;
}

static size_t stack(int32_t rank, size_t M) { return tm_stack_lut(rank, M); }

TM_TABLE(ternary_matmul_tl2);

TM_MATMUL_FORMAT(ternary_matmul_tl2) = {
    .name = "tl2",
    .kernels = tm_ternary_matmul_tl2,
    .bytes = bytes,
    .tables = tm_tl2_tables,
    .stack = stack,
};
