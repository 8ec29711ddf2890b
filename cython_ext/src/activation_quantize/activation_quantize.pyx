"""Boundary of the activation_quantize kernels."""

include "native.pxi"

cdef extern from "src/activation_quantize/activation_quantize.h":
    enum: TM_FLOAT32, TM_FLOAT16, TM_BFLOAT16
    ctypedef struct tm_activation_quantize_args:
        tm_run run
        const void *x
        int8_t *q
        float *scale
        int32_t *sum
        size_t M
        size_t K
        size_t stride
        int32_t input
    const tm_entry tm_activation_quantize[]


cdef class ActivationQuantize(NativeCall):
    """int8 rows, their scales and sums, of `x` (M, K), M >= 1 and 1 <= K < 2**24. Rows of x are contiguous and may lie
    apart. x is float32, or uint16 with the bits of `format`, "float16" or "bfloat16".

    `q` int8 (M, K), `scale` float32 (M,) and `sum` int32 (M,) are contiguous. `bad` is the index of the first NaN or
    infinity in the (M, K) array; then the outputs are undefined.
    """

    cdef tm_activation_quantize_args args

    def __init__(self, str isa, str format, x, int8_t[:, ::1] q, float[::1] scale, int32_t[::1] sum, int threads):
        cdef const float[:, :] floats
        cdef const uint16_t[:, :] halves
        cdef Py_ssize_t M, K, apart, size, row, column
        if format == "none":
            floats, self.args.input = x, TM_FLOAT32
            M, K, size, row, column = floats.shape[0], floats.shape[1], 4, floats.strides[0], floats.strides[1]
        elif format == "float16" or format == "bfloat16":
            halves, self.args.input = x, TM_FLOAT16 if format == "float16" else TM_BFLOAT16
            M, K, size, row, column = halves.shape[0], halves.shape[1], 2, halves.strides[0], halves.strides[1]
        else:
            raise ValueError(f"format is {format!r}; legal: none (float32), float16, bfloat16")
        apart = row // size if M > 1 else K
        if M < 1 or K < 1 or K >= 1 << 24 or (K > 1 and column != size) or apart < K or row % size:
            raise ValueError(
                f"x has shape {M, K} and strides {row, column}; legal: contiguous rows, M >= 1, 1 <= K < 2**24"
            )
        if q.shape[0] != M or q.shape[1] != K or scale.shape[0] != M or sum.shape[0] != M:
            raise ValueError(
                f"x has shape {M, K}, q {q.shape[0], q.shape[1]}, scale {scale.shape[0]} and sum "
                f"{sum.shape[0]} elements; legal: (M, K), (M, K), M and M"
            )
        self.args.x = <const void *>&floats[0, 0] if size == 4 else <const void *>&halves[0, 0]
        self.args.q = &q[0, 0]
        self.args.scale = &scale[0]
        self.args.sum = &sum[0]
        self.args.M = M
        self.args.K = K
        self.args.stride = apart
        self.bind(tm_activation_quantize, isa, &self.args, threads, (x, q, scale, sum))
