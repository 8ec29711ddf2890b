/* activation_quantize: any numbers of 32 or 16 bits, rows that may lie apart. */
#include "../fuzz.h"

#include "activation_quantize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t M = 1 + fuzz_take(&f, 1) % 7, K = fuzz_size(&f, 40000), lead = fuzz_take(&f, 1) % FUZZ_LEAD;
    tm_activation_quantize_args first, args = {.M = M, .K = K, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.stride = K + (M > 1 ? fuzz_take(&f, 1) % 33 : 0);
    const size_t n = (M - 1) * args.stride + K;
    args.input = (int32_t)(fuzz_take(&f, 1) % TM_INPUTS);
    /* Two of 16 bits in a float; where that leaves one over, it lies in front. */
    const size_t each_size = args.input == TM_FLOAT32 ? 4 : 2, floats = (n * each_size + 3) / 4;
    args.x = (const char *)fuzz_floats(&f, floats, fuzz_positive(&f)) + (4 * floats - n * each_size);
    void *before = fuzz_copy(&f, args.x, n * each_size);
    for (const tm_entry *each = tm_activation_quantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.q = fuzz_array(&f, lead, M * K);
        args.scale = fuzz_array(&f, lead & ~(size_t)3, M * sizeof *args.scale);
        args.sum = fuzz_array(&f, lead & ~(size_t)3, M * sizeof *args.sum);
        each->fn(&args);
        if (each == tm_activation_quantize)
            first = args;
        fuzz_same("bad", each->isa.name, &args.run.bad, &first.run.bad, sizeof args.run.bad);
        if (args.run.bad < 0) {
            fuzz_same("q", each->isa.name, args.q, first.q, M * K);
            fuzz_same("scale", each->isa.name, args.scale, first.scale, M * sizeof *args.scale);
            fuzz_same("sum", each->isa.name, args.sum, first.sum, M * sizeof *args.sum);
        }
    }
    fuzz_same("x", "afterwards", args.x, before, n * each_size);
    fuzz_end(&f);
    return 0;
}
