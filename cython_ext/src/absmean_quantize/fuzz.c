/* absmean_quantize: any floats, both ways of writing; the sum's order is fixed, so the scale has the same bits
 * everywhere. */
#include "../fuzz.h"

#include "absmean_quantize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t n = fuzz_size(&f, 140000), lead = fuzz_take(&f, 1) % FUZZ_LEAD;
    static tm_absmean_quantize_args args;
    args = (tm_absmean_quantize_args){.n = n, .stream = fuzz_take(&f, 1) & 1, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.x = fuzz_floats(&f, n, fuzz_positive(&f));
    void *before = fuzz_copy(&f, args.x, n * sizeof *args.x);
    const int8_t *q = NULL;
    const float *scale = NULL;
    int64_t bad = -1;
    for (const tm_entry *each = tm_absmean_quantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.q = fuzz_array(&f, lead, n);
        args.scale = fuzz_array(&f, 0, sizeof *args.scale);
        each->fn(&args);
        if (each == tm_absmean_quantize) {
            q = args.q;
            scale = args.scale;
            bad = args.run.bad;
        }
        fuzz_same("bad", each->isa.name, &args.run.bad, &bad, sizeof bad);
        fuzz_same("scale", each->isa.name, args.scale, scale, sizeof *scale);
        fuzz_same("q", each->isa.name, args.q, q, n);
    }
    fuzz_same("x", "afterwards", args.x, before, n * sizeof *args.x);
    fuzz_end(&f);
    return 0;
}
