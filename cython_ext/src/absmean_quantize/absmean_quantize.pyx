"""Boundary of the absmean_quantize kernels."""

include "native.pxi"

cdef extern from "src/absmean_quantize/absmean_quantize.h":
    ctypedef struct tm_absmean_quantize_args:
        tm_run run
        const float *x
        int8_t *q
        float *scale
        size_t n
        int32_t stream
    const tm_entry tm_absmean_quantize[]


cdef class AbsmeanQuantize(NativeCall):
    """scale = max(mean |x|, 1e-5), q = clamp(rint(x / scale), -1, 1). `x` float32 (n,), `q` int8 (n,), `scale` float32
    (1,), n >= 1.

    All are contiguous; `stream` writes around the caches. `bad` is the index of the first NaN or infinity of x; then
    nothing is written.
    """

    cdef tm_absmean_quantize_args args

    def __init__(self, str isa, const float[::1] x, int8_t[::1] q, float[::1] scale, bint stream, int threads):
        if x.shape[0] != q.shape[0] or x.shape[0] < 1 or scale.shape[0] != 1:
            raise ValueError(
                f"x has {x.shape[0]} elements, q {q.shape[0]} and scale {scale.shape[0]}; legal: n, n and 1, n >= 1"
            )
        self.args.x = &x[0]
        self.args.q = &q[0]
        self.args.scale = &scale[0]
        self.args.n = x.shape[0]
        self.args.stream = stream
        self.bind(tm_absmean_quantize, isa, &self.args, threads, (x, q, scale))
