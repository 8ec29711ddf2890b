"""Boundary of the activation_quantize kernels."""

include "native.pxi"

cdef extern from "src/activation_quantize/activation_quantize.h":
    ctypedef struct tm_activation_quantize_args:
        tm_run run
        const float *x
        int8_t *q
        float *scale
        int32_t *sum
        size_t M
        size_t K
        size_t stride
    const tm_entry tm_activation_quantize[]


cdef class ActivationQuantize(NativeCall):
    """int8 rows, their scales and sums of `x` float32 (M, K), M >= 1 and 1 <= K < 2**24, whose rows are contiguous and
    may lie apart.

    `q` int8 (M, K), `scale` float32 (M,) and `sum` int32 (M,) are contiguous. The first NaN or infinity of x is
    reported by `bad`, as its index in the (M, K) array; what is written is then without meaning.
    """

    cdef tm_activation_quantize_args args

    def __init__(self, str isa, const float[:, :] x, int8_t[:, ::1] q, float[::1] scale, int32_t[::1] sum, int threads):
        cdef Py_ssize_t M = x.shape[0], K = x.shape[1], apart = K
        if M > 1:
            apart = x.strides[0] // <Py_ssize_t>sizeof(float)
        if (
            M < 1 or K < 1 or K >= 1 << 24 or (K > 1 and x.strides[1] != sizeof(float))
            or apart < K or x.strides[0] % sizeof(float)
        ):
            raise ValueError(f"x has shape {M, K} and strides {x.strides[0], x.strides[1]}")
        if q.shape[0] != M or q.shape[1] != K or scale.shape[0] != M or sum.shape[0] != M:
            raise ValueError(
                f"x has shape {M, K}, q {q.shape[0], q.shape[1]}, scale {scale.shape[0]} and sum "
                f"{sum.shape[0]} elements"
            )
        self.args.x = &x[0, 0]
        self.args.q = &q[0, 0]
        self.args.scale = &scale[0]
        self.args.sum = &sum[0]
        self.args.M = M
        self.args.K = K
        self.args.stride = apart
        self.bind(tm_activation_quantize, isa, &self.args, threads, (x, q, scale, sum))
