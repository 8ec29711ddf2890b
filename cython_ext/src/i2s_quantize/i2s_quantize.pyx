"""Boundary of the i2s_quantize kernels."""

include "native.pxi"

cdef extern from "src/i2s_quantize/i2s_quantize.h":
    ctypedef struct tm_steps:
        pass
    ctypedef struct tm_i2s_quantize_args:
        tm_run run
        const float *x
        int8_t *q
        size_t n
        tm_steps steps
        int32_t stream
    tm_steps tm_find_steps(float scale)
    const tm_entry tm_i2s_quantize[]


cdef class I2SQuantize(NativeCall):
    """q = rint(clamp(x / scale, -2, 1)). `x` float32 (n,), `q` int8 (n,), both contiguous, n >= 1; `scale` finite and
    above zero.

    `stream` writes around the caches. `bad` is the index of the first NaN or infinity of x; then q is undefined.
    """

    cdef tm_i2s_quantize_args args

    def __init__(self, str isa, const float[::1] x, float scale, int8_t[::1] q, bint stream, int threads):
        if x.shape[0] != q.shape[0] or x.shape[0] < 1:
            raise ValueError(f"x has {x.shape[0]} elements and q {q.shape[0]}; legal: the same number, at least 1")
        if not 0 < scale < float("inf"):
            raise ValueError(f"scale is {scale}; legal: finite and above zero")
        self.args.x = &x[0]
        self.args.q = &q[0]
        self.args.n = x.shape[0]
        self.args.steps = tm_find_steps(scale)
        self.args.stream = stream
        self.bind(tm_i2s_quantize, isa, &self.args, threads, (x, q))
