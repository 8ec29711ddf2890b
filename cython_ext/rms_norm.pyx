"""Boundary of the RMS norm of PyTorch's modules."""

include "native.pxi"

cdef extern from "src/rms_norm/rms_norm.h":
    ctypedef struct tm_rms_norm_args:
        tm_run run
        const uint16_t *x
        const uint16_t *weight
        uint16_t *out
        size_t M
        size_t K
        float eps
    const tm_entry tm_rms_norm[]


cdef class RmsNorm:
    """The kernel of an instruction set, for bfloat16 at addresses."""

    cdef tm_kernel fn

    def __init__(self, str isa):
        cdef const tm_entry *entry = tm_rms_norm
        cdef bytes name = isa.encode()
        while entry.fn != NULL and strcmp(entry.isa.name, name):
            entry += 1
        if entry.fn == NULL:
            raise ValueError(f"no kernel for {isa} is compiled in")
        self.fn = entry.fn

    def run(self, uintptr_t x, uintptr_t weight, uintptr_t out, size_t M, size_t K, float eps, int threads) -> None:
        """Normalize rows `x` (M, K) into `out`, both contiguous and aligned to 2 bytes, M and K at least 1, with
        `weight` (K,). `out` is other memory."""
        cdef tm_rms_norm_args args
        args.run.threads = threads
        args.run.runs = 0
        args.x = <const uint16_t *>x
        args.weight = <const uint16_t *>weight
        args.out = <uint16_t *>out
        args.M = M
        args.K = K
        args.eps = eps
        with nogil:
            self.fn(&args)
