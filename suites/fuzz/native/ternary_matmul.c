/* ternary_matmul: any activations, tiles of any bytes, scales of any bits. Where a tile holds the reserved field 3,
 * which the format's unpacking refuses, int16 sums may wrap: then only the memory is watched. */
#include "fuzz.h"

#include "../../../cython_ext/src/ternary_matmul/ternary_matmul.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t M = 1 + fuzz_take(&f, 1) % 9, N = fuzz_size(&f, 200), K = fuzz_size(&f, M * N < 100 ? 40000 : 1500);
    size_t lead = fuzz_take(&f, 1) % FUZZ_LEAD, lead_out = fuzz_take(&f, 1) % FUZZ_LEAD & ~(size_t)3;
    int reserved = fuzz_take(&f, 1) % 8 == 7, extreme = fuzz_take(&f, 1) % 4;
    tm_ternary_matmul_args first, args = {.M = M, .N = N, .K = K, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.kind = (int32_t)(fuzz_take(&f, 1) % 3);
    args.lda = K + (M > 1 ? fuzz_take(&f, 1) % 33 : 0);
    args.weight_scale = fuzz_positive(&f);
    args.act_scale = args.kind == TM_OUT_INT32 ? NULL : fuzz_floats(&f, M, 1.0f);
    int8_t *a = fuzz_array(&f, lead, (M - 1) * args.lda + K);
    for (size_t i = 0; i < (M - 1) * args.lda + K; i++)
        a[i] = extreme == 1 ? -128 : extreme == 2 ? 127 : (int8_t)(fuzz_random(&f) >> 24);
    args.a = a;
    size_t bytes = (N + TM_TILE - 1) / TM_TILE * ((K + 3) / 4) * TM_TILE;
    uint8_t *tiles = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, bytes);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = extreme == 3 ? 0xaa : (uint8_t)(fuzz_random(&f) >> 24);
        if (!reserved) /* 3 becomes 2 */
            byte &= (uint8_t)~((byte >> 1) & byte & 0x55);
        tiles[i] = byte;
    }
    args.weights = tiles;
    size_t element = args.kind == TM_OUT_BFLOAT16 ? 2 : 4;
    for (const tm_entry *each = tm_ternary_matmul; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.out = fuzz_array(&f, lead_out, M * N * element);
        each->fn(&args);
        if (each == tm_ternary_matmul)
            first = args;
        if (!reserved)
            fuzz_same("out", each->isa.name, args.out, first.out, M * N * element);
    }
    fuzz_end(&f);
    return 0;
}
