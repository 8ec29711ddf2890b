/* ternary_matmul from each format: any activations, weights of any bytes, scales of any bits beside them and finite
 * ones within. Where a byte holds a reserved field 3, which the format's unpacking refuses, int16 sums may wrap: then
 * only the memory is watched, as for a format without a line in LAYOUTS. */
#include "../fuzz.h"

#include "formats.h"

/* Scales among the bytes, of which the upper bit of the exponent is cleared: the `count` of `bytes` bytes each at
 * `first` bytes of every `unit`, or of four rows of K bytes and 16 where that is 0. */
static const struct layout {
    const char *name;
    size_t unit, first, bytes, count;
    int reserves; /* whether it has a reserved field 3 */
} LAYOUTS[] = {
    {"tile64", 1, 0, 0, 0, 1},          {"i2_s_x86", 1, 0, 0, 0, 1},        {"tq2_0", 66, 64, 2, 1, 1},
    {"iq2_bn_r4", 0, 0, 4, 4, 1},       {"q2_0", 18, 0, 2, 1, 0},           {"tq1_0", 54, 52, 2, 1, 0},
    {"tile80", 1, 0, 0, 0, 0},          {"tile64_g32", 640, 0, 2, 64, 0},   {"tile64_g64", 1152, 0, 2, 64, 0},
    {"tile64_g128", 2176, 0, 2, 64, 0}, {"tile64_g256", 4224, 0, 2, 64, 0},
};

static const struct layout *layout_of(const char *name)
{
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++)
        if (!strcmp(LAYOUTS[i].name, name))
            return &LAYOUTS[i];
    return NULL;
}

/* A format without look-up tables; ternary_matmul_tl.c draws the others. */
static const tm_matmul_format *drawn(size_t number)
{
    size_t count = 0;
    for (const tm_matmul_format *const *each = tm_matmul_formats; *each; each++)
        count += !(*each)->tables;
    size_t left = number % count;
    const tm_matmul_format *const *each = tm_matmul_formats;
    while ((*each)->tables || left--)
        each++;
    return *each;
}

static void finite_scales(const struct layout *layout, uint8_t *weights, size_t bytes, size_t K)
{
    size_t unit = layout->unit ? layout->unit : 16 + K;
    for (size_t at = layout->first; layout->count && at < bytes; at += unit)
        for (size_t i = 0; i < layout->count; i++)
            weights[at + (i + 1) * layout->bytes - 1] &= 0xbf;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    size_t M = 1 + fuzz_take(&f, 1) % 9, N = fuzz_size(&f, 200), K = fuzz_size(&f, M * N < 100 ? 40000 : 1500);
    size_t lead = fuzz_take(&f, 1) % FUZZ_LEAD, lead_out = fuzz_take(&f, 1) % FUZZ_LEAD & ~(size_t)3;
    int reserved = fuzz_take(&f, 1) % 8 == 7, extreme = fuzz_take(&f, 1) % 4;
    const tm_matmul_format *form = drawn(fuzz_take(&f, 1));
    const struct layout *layout = layout_of(form->name);
    while (!form->bytes(N, K)) /* up to what the format takes */
        if (K % 256)
            K += 64 - K % 64;
        else
            N++;
    tm_ternary_matmul_args first, args = {.M = M, .N = N, .K = K, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.kind = form->group ? TM_OUT_FLOAT32 + (int32_t)(fuzz_take(&f, 1) % 2) : (int32_t)(fuzz_take(&f, 1) % 3);
    args.group = form->group;
    args.lda = K + (M > 1 ? fuzz_take(&f, 1) % 33 : 0);
    args.weight_scale = fuzz_positive(&f);
    args.act_scale = args.kind == TM_OUT_INT32 ? NULL : fuzz_scales(&f, M);
    if (form->room)
        args.act_sums = fuzz_array(&f, 0, form->room(M, K));
    int8_t *a = fuzz_array(&f, lead, (M - 1) * args.lda + K);
    for (size_t i = 0; i < (M - 1) * args.lda + K; i++)
        a[i] = extreme == 1 ? -128 : extreme == 2 ? 127 : (int8_t)(fuzz_random(&f) >> 24);
    args.a = a;
    size_t bytes = form->bytes(N, K);
    uint8_t *weights = fuzz_array(&f, fuzz_take(&f, 1) % FUZZ_LEAD, bytes);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = extreme == 3 ? 0xaa : (uint8_t)(fuzz_random(&f) >> 24);
        if (layout && layout->reserves && !reserved) /* 3 becomes 2 */
            byte &= (uint8_t)~((byte >> 1) & byte & 0x55);
        weights[i] = byte;
    }
    if (layout)
        finite_scales(layout, weights, bytes, K);
    args.weights = weights;
    size_t element = args.kind == TM_OUT_BFLOAT16 ? 2 : 4;
    for (const tm_entry *each = form->kernels; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.out = fuzz_array(&f, lead_out, M * N * element);
        each->fn(&args);
        if (each == form->kernels)
            first = args;
        if (layout && !(layout->reserves && reserved))
            fuzz_same("out", each->isa.name, args.out, first.out, M * N * element);
    }
    fuzz_end(&f);
    return 0;
}
