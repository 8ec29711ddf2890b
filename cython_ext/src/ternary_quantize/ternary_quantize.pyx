"""Boundary of the ternary_quantize kernels."""

include "native.pxi"

cdef extern from "src/ternary_quantize/ternary_quantize.h":
    enum: TM_GROUP, TM_GROUP_BYTES
    ctypedef struct tm_ternary_quantize_args:
        tm_run run
        const float *x
        float *scales
        int8_t *codes
        uint8_t *packed
        size_t n
        size_t block
        int32_t stream
    const tm_entry tm_ternary_quantize[]


cdef class TernaryQuantize(NativeCall):
    """Ternary codes and block scales of `x` float32 (n,), n >= 1. All arrays are contiguous; `stream` writes around the
    caches.

    `codes` is int8 (n,), or uint8 (32 * ceil(n / 128),) for packed ones; `scales` float32 (ceil(n / block),), 1 <=
    block <= n. `bad` is the index of the first NaN or infinity of x; then the outputs are undefined.
    """

    cdef tm_ternary_quantize_args args

    def __init__(
        self, str isa, const float[::1] x, Py_ssize_t block, codes, float[::1] scales, bint stream, int threads
    ):
        cdef Py_ssize_t n = x.shape[0], size
        cdef int8_t[::1] plain
        cdef uint8_t[::1] packed
        if codes.dtype.kind == "u":
            packed = codes
            size = (n + TM_GROUP - 1) // TM_GROUP * TM_GROUP_BYTES
        else:
            plain = codes
            size = n
        if n < 1 or block < 1 or block > n or codes.shape[0] != size or scales.shape[0] != (n + block - 1) // block:
            raise ValueError(
                f"x has {n} elements in blocks of {block}, codes {codes.shape[0]} and scales {scales.shape[0]}; "
                f"legal: 1 <= block <= n, {size} codes, one scale a block"
            )
        if codes.dtype.kind == "u":
            self.args.packed = &packed[0]
        else:
            self.args.codes = &plain[0]
        self.args.x = &x[0]
        self.args.scales = &scales[0]
        self.args.n = n
        self.args.block = block
        self.args.stream = stream
        self.bind(tm_ternary_quantize, isa, &self.args, threads, (x, codes, scales))
