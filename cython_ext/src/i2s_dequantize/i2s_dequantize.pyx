"""Boundary of the i2s_dequantize kernels."""

include "native.pxi"

cdef extern from "src/i2s_dequantize/i2s_dequantize.h":
    ctypedef struct tm_i2s_dequantize_args:
        tm_run run
        const int8_t *q
        float *x
        size_t n
        float scale
        int32_t stream
    const tm_entry tm_i2s_dequantize[]


cdef class I2SDequantize(NativeCall):
    """x = q * scale. `q` int8 (n,), `x` float32 (n,), both contiguous, n >= 1; `stream` writes around the caches."""

    cdef tm_i2s_dequantize_args args

    def __init__(self, str isa, const int8_t[::1] q, float scale, float[::1] x, bint stream, int threads):
        if q.shape[0] != x.shape[0] or q.shape[0] < 1:
            raise ValueError(f"q has {q.shape[0]} elements and x {x.shape[0]}; legal: the same number, at least 1")
        self.args.q = &q[0]
        self.args.x = &x[0]
        self.args.n = q.shape[0]
        self.args.scale = scale
        self.args.stream = stream
        self.bind(tm_i2s_dequantize, isa, &self.args, threads, (q, x))
