/* hadamard_quantize: any numbers of 32 or 16 bits, rows that may lie apart, every output. */
#include "../fuzz.h"

#include "hadamard_quantize.h"

/* `fraction` / 4 times the root of the block at x[i], which all kinds of inputs hold; `fraction` is 128 to 255. */
static void put(void *x, size_t i, const tm_hadamard_quantize_args *args, uint32_t fraction)
{
    const uint32_t exponent = args->block == 64 ? 8 : args->block == 256 ? 9 : 10, bits = fraction & 0x7f;
    const uint32_t wide = (exponent + 127) << 23 | bits << 16;
    if (args->input == TM_FLOAT32)
        memcpy((float *)x + i, &wide, sizeof wide);
    else
        ((uint16_t *)x)[i] = (uint16_t)(args->input == TM_FLOAT16 ? (exponent + 15) << 10 | bits << 3 : wide >> 16);
}

/* Rows of 127 and 1/2 after the rotation, so that codes are ties. For blocks with a root that is a power of two. */
static void put_ties(fuzz *f, const tm_hadamard_quantize_args *args)
{
    for (size_t m = 0; m < args->M; m++) {
        void *x = (void *)(uintptr_t)tm_input_from(args->x, m * args->stride, args->input);
        memset(x, 0, (size_t)((const char *)tm_input_from(x, args->K, args->input) - (const char *)x));
        const size_t at = fuzz_random(f) % (args->K / args->block) * args->block, i = fuzz_random(f) % args->block;
        put(x, at + i, args, 255);
        put(x, at + (i ^ (size_t)1 << fuzz_random(f) % 6), args, 253);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz f = fuzz_begin(data, size);
    const size_t M = 1 + fuzz_take(&f, 1) % 5, block = (size_t)64 << fuzz_take(&f, 1) % 5;
    const size_t K = fuzz_size(&f, 24) * block, lead = fuzz_take(&f, 1) % FUZZ_LEAD;
    tm_hadamard_quantize_args first, args = {.M = M, .K = K, .block = block, .run.threads = 1 + fuzz_take(&f, 1) % 5};
    args.stride = K + (M > 1 ? fuzz_take(&f, 1) % 33 : 0);
    const size_t n = (M - 1) * args.stride + K;
    args.input = (int32_t)(fuzz_take(&f, 1) % TM_INPUTS);
    args.output = (int32_t)(fuzz_take(&f, 1) % TM_OUTPUTS);
    /* Two of 16 bits in a float; where that leaves one over, it lies in front. */
    const size_t each_size = args.input == TM_FLOAT32 ? 4 : 2, floats = (n * each_size + 3) / 4;
    args.x = (const char *)fuzz_floats(&f, floats, fuzz_positive(&f)) + (4 * floats - n * each_size);
    int8_t *signs = fuzz_array(&f, lead, K);
    for (size_t i = 0; i < K; i++)
        signs[i] = fuzz_random(&f) % 2 ? 1 : -1;
    args.signs = signs;
    if (fuzz_take(&f, 1) % 4 == 3 && block != 128 && block != 512)
        put_ties(&f, &args);
    void *before = fuzz_copy(&f, args.x, n * each_size);
    const size_t out_size = args.output == TM_FLOAT32 ? 4 : args.output == TM_INT8 ? 1 : 2;
    int finite = 1;
    for (const tm_entry *each = tm_hadamard_quantize; each->fn; each++) {
        if (!fuzz_here(&each->isa))
            continue;
        args.out = fuzz_array(&f, lead & ~(out_size - 1), M * K * out_size);
        args.scale = args.output == TM_INT8 ? fuzz_array(&f, lead & ~(size_t)3, M * sizeof *args.scale) : NULL;
        args.sum = args.output == TM_INT8 ? fuzz_array(&f, lead & ~(size_t)3, M * sizeof *args.sum) : NULL;
        each->fn(&args);
        if (each == tm_hadamard_quantize) {
            first = args;
            for (size_t i = 0; args.output != TM_INT8 && i < M * K; i++) {
                const float y = args.output == TM_FLOAT32   ? ((const float *)args.out)[i]
                                : args.output == TM_FLOAT16 ? tm_half(((const uint16_t *)args.out)[i])
                                                            : tm_bfloat(((const uint16_t *)args.out)[i]);
                finite &= y == y; /* the sign of a NaN is free */
            }
        }
        if (finite)
            fuzz_same("out", each->isa.name, args.out, first.out, M * K * out_size);
        if (args.output == TM_INT8) {
            fuzz_same("scale", each->isa.name, args.scale, first.scale, M * sizeof *args.scale);
            fuzz_same("sum", each->isa.name, args.sum, first.sum, M * sizeof *args.sum);
        }
    }
    fuzz_same("x", "afterwards", args.x, before, n * each_size);
    fuzz_end(&f);
    return 0;
}
