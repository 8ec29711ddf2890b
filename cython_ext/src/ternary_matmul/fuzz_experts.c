/* ternary_matmul_experts from tiles of 64 rows: any offsets, any activations and codes. Offsets outside the contract
 * must be reported, and nothing written; rows must have the bits of ternary_matmul with their expert. */
#include "../fuzz.h"

#include "experts.h"

/* tile64 and the formats of tile64_grouped. */
static const char *const NAMES[] = {"tile64", "tile64_g32", "tile64_g64", "tile64_g128", "tile64_g256"};

/* The products of each expert alone. */
static void in_a_loop(const tm_experts_args *x, tm_kernel kernel, size_t element)
{
    for (size_t e = 0; e < x->E; e++) {
        const size_t m = (size_t)x->offsets[e], rows = (size_t)x->offsets[e + 1] - m;
        tm_ternary_matmul_args args = {
            .run.threads = 1,
            .a = x->a + m * x->lda,
            .weights = x->weights + e * x->expert_bytes,
            .act_scale = x->act_scale + m,
            .out = (uint8_t *)x->out + m * x->N * element,
            .lda = x->lda,
            .M = rows,
            .N = x->N,
            .K = x->K,
            .act_sums = x->act_sums,
            .weight_scale = x->weight_scale[e],
            .kind = x->kind,
            .group = x->format->group,
        };
        if (rows)
            kernel(&args);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    const tm_matmul_format *form = tm_matmul_format_named(NAMES[fuzz_take(&f, 1) % (sizeof NAMES / sizeof *NAMES)]);
    const size_t E = 1 + fuzz_take(&f, 1) % 7, N = fuzz_size(&f, 200);
    size_t K = fuzz_size(&f, 600);
    if (form->group)
        K = (K + form->group - 1) / form->group * form->group;
    int32_t *offsets = fuzz_array(&f, 0, (E + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (size_t e = 0; e < E; e++) {
        const size_t kind = fuzz_take(&f, 1), many = fuzz_take(&f, 1);
        offsets[e + 1] = offsets[e] + (int32_t)(kind < 96 ? 0 : kind < 240 ? many % 9 : many);
    }
    if (!offsets[E])
        offsets[E] = 1;
    const size_t M = (size_t)offsets[E];
    int64_t bad = -1;
    if (fuzz_take(&f, 1) % 8 == 7) {
        const size_t at = fuzz_take(&f, 1) % (E + 1);
        offsets[at] = (int32_t)fuzz_take(&f, 4);
        if (offsets[0] != 0)
            bad = 0;
        for (size_t e = 0; e < E && bad < 0; e++)
            if (offsets[e + 1] < offsets[e])
                bad = (int64_t)e + 1;
        if (bad < 0 && (size_t)offsets[E] != M)
            bad = (int64_t)E;
    }
    tm_experts_args args = {.M = M, .E = E, .N = N, .K = K, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.format = form;
    args.offsets = offsets;
    args.kind = form->group ? TM_OUT_FLOAT32 + (int32_t)(fuzz_take(&f, 1) % 2) : (int32_t)(fuzz_take(&f, 1) % 3);
    args.lda = K + (M > 1 ? fuzz_take(&f, 1) % 33 : 0);
    float *scales = fuzz_array(&f, 0, E * sizeof *scales);
    for (size_t e = 0; e < E; e++)
        scales[e] = fuzz_positive(&f);
    args.weight_scale = scales;
    args.act_scale = fuzz_scales(&f, M);
    args.act_sums = form->group ? fuzz_array(&f, 0, form->room(M, K)) : NULL;
    args.costs = fuzz_array(&f, 0, (E + 1) * sizeof *args.costs);
    int8_t *a = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, (M - 1) * args.lda + K);
    for (size_t i = 0; i < (M - 1) * args.lda + K; i++)
        a[i] = (int8_t)(fuzz_random(&f) >> 24);
    args.a = a;
    args.expert_bytes = form->bytes(N, K) + fuzz_take(&f, 1) % 3 * 64;
    const size_t bytes = (E - 1) * args.expert_bytes + form->bytes(N, K);
    uint8_t *weights = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, bytes);
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)(fuzz_random(&f) >> 24);
        /* In scales no exponent of infinity; without them no field 3. */
        weights[i] = form->group ? byte & 0xbf : byte & (uint8_t)~((byte >> 1) & byte & 0x55);
    }
    args.weights = weights;
    const size_t element = args.kind == TM_OUT_BFLOAT16 ? 2 : 4, written = M * N * element;
    uint8_t *wanted = fuzz_array(&f, 0, written);
    for (const tm_entry *each = form->kernels; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.kernel = each->fn;
        args.rank = each->isa.rank;
        args.out = wanted;
        if (bad < 0 && each == form->kernels)
            in_a_loop(&args, each->fn, element);
        args.out = fuzz_array(&f, 0, written);
        tm_experts(&args);
        fuzz_same("bad", each->isa.name, &args.run.bad, &bad, sizeof bad);
        fuzz_same("out", each->isa.name, args.out, wanted, written);
    }
    fuzz_end(&f);
    return 0;
}
