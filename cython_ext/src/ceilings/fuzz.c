/* The probes of the machine's ceilings: any size that the boundary admits; each kind must leave the same checksum
 * and the same bytes. */
#include "../fuzz.h"

#include "ceilings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    int32_t kind = (int32_t)(fuzz_take(&f, 1) % TM_PROBES);
    size_t n = fuzz_size(&f, kind == TM_COMPUTE ? 20000 : 300000);
    if (kind == TM_COPY || kind == TM_COPY_AROUND)
        n = (n + 127) / 128 * 128;
    if (kind == TM_COMPUTE && n < 64)
        n = 64;
    tm_probe_args first, args = {.nbytes = n, .kind = kind, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    uint8_t *from = fuzz_array(&f, 0, n);
    for (size_t i = 0; i < n; i++)
        from[i] = (uint8_t)(fuzz_random(&f) >> 24);
    for (const tm_entry *each = tm_probe; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        /* The boundary wants 64 bytes' alignment; malloc gives 16. */
        uint8_t *room = fuzz_array(&f, 0, n + 64);
        size_t shift = (0 - (uintptr_t)room) % 64;
        ASAN_POISON_MEMORY_REGION(room + shift + n, 64 - shift);
        args.data = memcpy(room + shift, from, n);
        args.run.runs = 0;
        each->fn(&args);
        ASAN_UNPOISON_MEMORY_REGION(room + shift + n, 64 - shift);
        if (each == tm_probe)
            first = args;
        fuzz_same("checksum", each->isa.name, &args.checksum, &first.checksum, sizeof args.checksum);
        fuzz_same("data", each->isa.name, args.data, first.data, n);
    }
    fuzz_end(&f);
    return 0;
}
