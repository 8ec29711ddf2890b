/* ternary_quantize: any floats, any block, codes apart or packed, both ways of writing. */
#include "../fuzz.h"

#include "ternary_quantize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t n = fuzz_size(&f, 140000), block = fuzz_size(&f, n), lead = fuzz_take(&f, 1) % FUZZ_LEAD;
    size_t lead_scales = fuzz_take(&f, 1) % FUZZ_LEAD & ~(size_t)3;
    int packed = fuzz_take(&f, 1) & 1;
    tm_ternary_quantize_args first, args = {.n = n, .block = block, .stream = fuzz_take(&f, 1) & 1};
    args.run.threads = 1 + (int32_t)(fuzz_take(&f, 1) % 5);
    args.x = fuzz_floats(&f, n, 1.0f);
    void *before = fuzz_copy(&f, args.x, n * sizeof *args.x);
    size_t scales = (n + block - 1) / block, bytes = packed ? (n + TM_GROUP - 1) / TM_GROUP * TM_GROUP_BYTES : n;
    for (const tm_entry *each = tm_ternary_quantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.scales = fuzz_array(&f, lead_scales, scales * sizeof *args.scales);
        void *codes = fuzz_array(&f, lead, bytes);
        args.packed = packed ? codes : NULL;
        args.codes = packed ? NULL : codes;
        each->fn(&args);
        if (each == tm_ternary_quantize)
            first = args;
        fuzz_same("bad", each->isa.name, &args.run.bad, &first.run.bad, sizeof args.run.bad);
        if (args.run.bad < 0) {
            fuzz_same("scales", each->isa.name, args.scales, first.scales, scales * sizeof *args.scales);
            fuzz_same("codes", each->isa.name, codes, packed ? (void *)first.packed : (void *)first.codes, bytes);
        }
    }
    fuzz_same("x", "afterwards", args.x, before, n * sizeof *args.x);
    fuzz_end(&f);
    return 0;
}
