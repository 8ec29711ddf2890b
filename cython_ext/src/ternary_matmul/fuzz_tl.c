/* ternary_matmul of tl1 and tl2: any activations, layouts and bytes, also such as the kernels refuse. Where a nibble is
 * one that unpacking refuses, sums are anything: then only the memory is watched. */
#include "../fuzz.h"

#include "formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    const int two = fuzz_take(&f, 1) & 1, reserved = fuzz_take(&f, 1) % 8 == 7, extreme = fuzz_take(&f, 1) % 4;
    const tm_matmul_format *format = tm_matmul_format_named(two ? "tl2" : "tl1");
    tm_ternary_matmul_args first, args = {.M = 1 + fuzz_take(&f, 1) % 6, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.bm = two ? 32 : (size_t)16 << fuzz_take(&f, 1) % 3;
    args.BM = args.bm * (1 + fuzz_take(&f, 1) % 12);
    args.BK = (two ? 24 : 8) * (1 + fuzz_take(&f, 1) % 20);
    args.N = args.BM * (1 + fuzz_take(&f, 1) % 3);
    args.K = args.BK * (1 + fuzz_take(&f, 1) % 4) + (two ? 32 * (fuzz_take(&f, 1) % 4) : 0);
    if (fuzz_take(&f, 1) % 16 == 0)
        args.K += 1 + fuzz_take(&f, 1) % 40;
    const size_t room = format->tables(&args), lead_out = fuzz_take(&f, 1) % FUZZ_LEAD & ~(size_t)3;
    if (room) {
        args.kind = (int32_t)(fuzz_take(&f, 1) % 3);
        args.lda = args.K + (args.M > 1 ? fuzz_take(&f, 1) % 33 : 0);
        args.weight_scale = fuzz_positive(&f);
        args.act_scale = args.kind == TM_OUT_INT32 ? NULL : fuzz_scales(&f, args.M);
        const size_t there = (args.M - 1) * args.lda + args.K, bytes = format->bytes(args.N, args.K);
        int8_t *a = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, there);
        for (size_t i = 0; i < there; i++)
            a[i] = extreme == 1 ? -128 : extreme == 2 ? 127 : (int8_t)(fuzz_random(&f) >> 24);
        args.a = a;
        uint8_t *weights = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, bytes);
        for (size_t i = 0; i < bytes; i++) {
            const uint64_t drawn = fuzz_random(&f);
            /* Fields of pairs are legal for triples too; all bits of the signs may be set. */
            const uint8_t legal = (uint8_t)((drawn >> 8) % 9 << 4 | (drawn >> 32) % 9);
            weights[i] = reserved ? (uint8_t)(drawn >> 24) : extreme == 3 ? 0x88 : legal;
        }
        args.weights = weights;
        args.tables = (uint8_t *)(((uintptr_t)fuzz_array(&f, 0, room + 63) + 63) / 64 * 64);
        const size_t element = args.kind == TM_OUT_BFLOAT16 ? 2 : 4;
        for (const tm_entry *each = format->kernels; each->fn; each++) {
            if (!fuzz_here(&each->isa))
                continue;
            args.out = fuzz_array(&f, lead_out, args.M * args.N * element);
            each->fn(&args);
            if (each == format->kernels)
                first = args;
            if (!reserved)
                fuzz_same("out", each->isa.name, args.out, first.out, args.M * args.N * element);
        }
    }
    fuzz_end(&f);
    return 0;
}
