"""Boundary of the kernels of hadamard_quantize and hadamard_transform."""

include "native.pxi"

cdef extern from "src/hadamard_quantize/hadamard_quantize.h":
    enum: TM_FLOAT32, TM_FLOAT16, TM_BFLOAT16, TM_INT8
    ctypedef struct tm_hadamard_quantize_args:
        tm_run run
        const void *x
        const int8_t *signs
        void *out
        float *scale
        int32_t *sum
        size_t M
        size_t K
        size_t block
        size_t stride
        int32_t input
        int32_t output
    const tm_entry tm_hadamard_quantize[]


cdef dict INPUTS = {"none": TM_FLOAT32, "float16": TM_FLOAT16, "bfloat16": TM_BFLOAT16}
cdef dict OUTPUTS = {"float32": TM_FLOAT32, "float16": TM_FLOAT16, "bfloat16": TM_BFLOAT16, "int8": TM_INT8}


cdef class HadamardQuantize(NativeCall):
    """Rows of `x` (M, K) times `signs` int8 (K,) and the Hadamard matrix in blocks of `block`, 64 to 1024, which divides
    K. M >= 1 and K < 2**24. Rows of x are contiguous and may lie apart. x is float32, or uint16 with the bits of
    `format`, "float16" or "bfloat16".

    `dtype` "int8": `out` int8 (M, K), `scale` float32 (M,) and `sum` int32 (M,) are contiguous. Otherwise `scale` and
    `sum` are None, and `out` (M, K) is float32, or uint16 for the bits of `dtype`, "float16" or "bfloat16".
    """

    cdef tm_hadamard_quantize_args args

    def __init__(
        self, str isa, str format, str dtype, x, const int8_t[::1] signs, out, scale, sum, Py_ssize_t block, int threads
    ):
        cdef const float[:, :] floats
        cdef const uint16_t[:, :] halves
        cdef int8_t[:, ::1] codes
        cdef float[:, ::1] wide
        cdef uint16_t[:, ::1] narrow
        cdef float[::1] scales
        cdef int32_t[::1] sums
        cdef Py_ssize_t M, K, apart, size, row, column
        if format not in INPUTS:
            raise ValueError(f"format is {format!r}; legal: none (float32), float16, bfloat16")
        if dtype not in OUTPUTS:
            raise ValueError(f"dtype is {dtype!r}; legal: int8, float32, float16, bfloat16")
        self.args.input, self.args.output = INPUTS[format], OUTPUTS[dtype]
        if self.args.input == TM_FLOAT32:
            floats = x
            M, K, size, row, column = floats.shape[0], floats.shape[1], 4, floats.strides[0], floats.strides[1]
        else:
            halves = x
            M, K, size, row, column = halves.shape[0], halves.shape[1], 2, halves.strides[0], halves.strides[1]
        if block not in (64, 128, 256, 512, 1024):
            raise ValueError(f"block is {block}; legal: 64, 128, 256, 512, 1024")
        apart = row // size if M > 1 else K
        if M < 1 or K < block or K % block or K >= 1 << 24 or column != size or apart < K or row % size:
            raise ValueError(
                f"x has shape {M, K} and strides {row, column}; legal: contiguous rows, M >= 1, K < 2**24, a multiple "
                f"of the block {block}"
            )
        if signs.shape[0] != K:
            raise ValueError(f"signs has {signs.shape[0]} elements; legal: {K}, the columns of x")
        if out.shape != (M, K):
            raise ValueError(f"out has shape {out.shape}; legal: {M, K}, the shape of x")
        if self.args.output == TM_INT8:
            codes, scales, sums = out, scale, sum
            if scales.shape[0] != M or sums.shape[0] != M:
                raise ValueError(f"scale and sum have {scales.shape[0]} and {sums.shape[0]} elements; legal: {M}")
            self.args.out, self.args.scale, self.args.sum = &codes[0, 0], &scales[0], &sums[0]
        elif scale is not None or sum is not None:
            raise ValueError(f"scale and sum are arrays for {dtype}; legal: None")
        elif self.args.output == TM_FLOAT32:
            wide = out
            self.args.out = &wide[0, 0]
        else:
            narrow = out
            self.args.out = &narrow[0, 0]
        self.args.x = <const void *>&floats[0, 0] if size == 4 else <const void *>&halves[0, 0]
        self.args.signs = &signs[0]
        self.args.M = M
        self.args.K = K
        self.args.block = block
        self.args.stride = apart
        self.bind(tm_hadamard_quantize, isa, &self.args, threads, (x, signs, out, scale, sum))
