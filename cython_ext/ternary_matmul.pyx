"""Boundary of the ternary_matmul kernels."""

include "native.pxi"

cdef extern from "src/ternary_matmul/ternary_matmul.h":
    enum: TM_OUT_INT32, TM_OUT_FLOAT32, TM_OUT_BFLOAT16
    ctypedef struct tm_ternary_matmul_args:
        tm_run run
        const int8_t *a
        const uint8_t *tiles
        const float *act_scale
        void *out
        size_t lda
        size_t M
        size_t N
        size_t K
        float weight_scale
        int32_t kind
    const tm_entry tm_ternary_matmul[]


cdef class TernaryMatmul(NativeCall):
    """out (M, N) from activations int8 (M, K), rows contiguous but maybe apart, and `tiles`, the tile64 bytes of an (N, K) matrix.

    `out` is int32, float32, or bfloat16 seen as uint16, and contiguous; `act_scale` float32 (M,) is not looked at for int32.
    """

    cdef tm_ternary_matmul_args args

    def __init__(
        self, str isa, const int8_t[:, :] activations, const uint8_t[::1] tiles, Py_ssize_t N, float weight_scale, const float[::1] act_scale, out,
        int threads,
    ):
        cdef Py_ssize_t M = activations.shape[0], K = activations.shape[1]
        cdef int32_t[:, ::1] out_int32
        cdef float[:, ::1] out_float32
        cdef uint16_t[:, ::1] out_bfloat16
        if M < 1 or N < 1 or K < 1 or (K > 1 and activations.strides[1] != 1) or activations.strides[0] < 0:
            raise ValueError(f"activations of shape {M, K}, N = {N}")
        if tiles.shape[0] < (N + 63) // 64 * ((K + 3) // 4) * 64 or out.shape != (M, N) or act_scale.shape[0] != M:
            raise ValueError(f"{tiles.shape[0]} bytes of tiles, output {out.shape}, {act_scale.shape[0]} scales for M, N, K = {M, N, K}")
        if out.dtype.kind == "i":
            out_int32 = out
            self.args.kind = TM_OUT_INT32
            self.args.out = &out_int32[0, 0]
        elif out.itemsize == 4:
            out_float32 = out
            self.args.kind = TM_OUT_FLOAT32
            self.args.out = &out_float32[0, 0]
        else:
            out_bfloat16 = out.view("uint16")
            self.args.kind = TM_OUT_BFLOAT16
            self.args.out = &out_bfloat16[0, 0]
        self.args.a = &activations[0, 0]
        self.args.lda = activations.strides[0]
        self.args.tiles = &tiles[0]
        self.args.act_scale = &act_scale[0]
        self.args.weight_scale = weight_scale
        self.args.M, self.args.N, self.args.K = M, N, K
        self.bind(tm_ternary_matmul, isa, &self.args, threads, (activations, tiles, act_scale, out))
