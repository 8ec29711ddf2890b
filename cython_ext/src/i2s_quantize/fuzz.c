/* i2s_quantize: any finite scale above zero, any floats, both ways of writing. */
#include "../fuzz.h"

#include "i2s_quantize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t n = fuzz_size(&f, 140000), lead = fuzz_take(&f, 1) % FUZZ_LEAD;
    float scale = fuzz_positive(&f);
    tm_i2s_quantize_args first,
        args = {.n = n, .stream = fuzz_take(&f, 1) & 1, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.x = fuzz_floats(&f, n, scale);
    args.steps = tm_find_steps(scale);
    void *before = fuzz_copy(&f, args.x, n * sizeof *args.x);
    for (const tm_entry *each = tm_i2s_quantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.q = fuzz_array(&f, lead, n);
        each->fn(&args);
        if (each == tm_i2s_quantize)
            first = args;
        fuzz_same("bad", each->isa.name, &args.run.bad, &first.run.bad, sizeof args.run.bad);
        if (args.run.bad < 0)
            fuzz_same("q", each->isa.name, args.q, first.q, n);
    }
    fuzz_same("x", "afterwards", args.x, before, n * sizeof *args.x);
    fuzz_end(&f);
    return 0;
}
