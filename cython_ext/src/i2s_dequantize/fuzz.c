/* i2s_dequantize: any int8 and any scale but NaN, both ways of writing. */
#include "../fuzz.h"

#include "i2s_dequantize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t n = fuzz_size(&f, 140000), lead_q = fuzz_take(&f, 1) % FUZZ_LEAD,
           lead_x = fuzz_take(&f, 1) % FUZZ_LEAD & ~(size_t)3;
    tm_i2s_dequantize_args first,
        args = {.n = n, .stream = fuzz_take(&f, 1) & 1, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    uint32_t bits = (uint32_t)fuzz_take(&f, 4);
    memcpy(&args.scale, &bits, sizeof bits);
    if (args.scale != args.scale)
        args.scale = 1.0f;
    int8_t *q = fuzz_array(&f, lead_q, n);
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)(fuzz_random(&f) >> 24);
    args.q = q;
    void *before = fuzz_copy(&f, q, n);
    for (const tm_entry *each = tm_i2s_dequantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.x = fuzz_array(&f, lead_x, n * sizeof *args.x);
        each->fn(&args);
        if (each == tm_i2s_dequantize)
            first = args;
        fuzz_same("x", each->isa.name, args.x, first.x, n * sizeof *args.x);
    }
    fuzz_same("q", "afterwards", q, before, n);
    fuzz_end(&f);
    return 0;
}
