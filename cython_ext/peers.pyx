"""Calls of other projects' products, by the addresses of their functions."""

include "native.pxi"

cdef extern from "src/peers/peers.h":
    ctypedef struct tm_peer_args:
        tm_run run
        void *function
        void *several
        const uint8_t *weights
        const uint8_t *activations
        float *out
        const float *sums
        const float *scales
        const int32_t *offsets
        size_t weight_row
        size_t activation_row
        size_t together
        size_t M
        size_t N
        size_t K
        size_t experts
        int32_t weight_type
        int32_t activation_type
        int32_t refused
    int tm_peer_vec_dot(void *args) noexcept nogil
    int tm_peer_iqk_mul_mat(void *args) noexcept nogil


cdef class PeerCall:
    """out (M, N), float32, from the rows of weights (N, bytes) and of activations (M, bytes), in the formats of the
    function at `address`; `name` is reported as the kernel that ran.

    `types` None: a ggml_vec_dot_t; else the type numbers of weights and activations for iqk_mul_mat. `several`: the
    address of another ggml_vec_dot_t, and how many rows of activations it takes at once (at most 16); it is called for
    full blocks. With `scales`, float32 (M,), each result is scaled, and of a ggml_vec_dot_t `sums`, float32 (M,), are
    subtracted before. With `offsets`, int32 (E + 1,) ascending from 0 to M, the weights are (E * N, bytes), and rows
    offsets[e] to offsets[e + 1] are multiplied with those of expert e.
    """

    cdef tm_peer_args args
    cdef int32_t one[2]
    cdef tm_call call
    cdef str name
    cdef object owners

    bad = -1

    def __init__(
        self, str name, uintptr_t address, const uint8_t[:, ::1] weights, const uint8_t[:, ::1] activations,
        Py_ssize_t K, float[:, ::1] out, int threads, types=None, const float[::1] sums=None,
        const float[::1] scales=None, several=None, const int32_t[::1] offsets=None,
    ):
        cdef Py_ssize_t M = activations.shape[0], E = 1 if offsets is None else offsets.shape[0] - 1
        cdef Py_ssize_t N = weights.shape[0] // max(E, 1), e
        if E < 1 or weights.shape[0] != E * N:
            raise ValueError(f"{weights.shape[0]} rows of weights for {E} experts; legal: as many for each, 1 or more")
        if M < 1 or N < 1 or K < 1 or threads < 1 or not address or out.shape[0] != M or out.shape[1] != N:
            raise ValueError(f"output {out.shape[0], out.shape[1]} for M, N, K = {M, N, K}, {threads} threads; "
                             "legal: (M, N), all at least 1")
        if sums is not None and scales is None:
            raise ValueError("sums without scales; legal: both, scales alone, or none")
        if (sums is not None and sums.shape[0] != M) or (scales is not None and scales.shape[0] != M):
            raise ValueError(f"sums or scales that are not of {M} rows; legal: one of each a row")
        self.one = [0, <int32_t>M]
        self.args.offsets = &self.one[0] if offsets is None else &offsets[0]
        for e in range(E):
            if self.args.offsets[e + 1] < self.args.offsets[e]:
                raise ValueError(f"offset {self.args.offsets[e + 1]} after {self.args.offsets[e]}; legal: ascending")
        if self.args.offsets[0] != 0 or self.args.offsets[E] != M:
            raise ValueError(f"offsets {self.args.offsets[0]} to {self.args.offsets[E]}; legal: 0 to {M}")
        self.name, self.owners = name, (weights, activations, out, sums, scales, offsets)
        self.args.function = <void *>address
        self.args.weights, self.args.weight_row = &weights[0, 0], weights.shape[1]
        self.args.activations, self.args.activation_row = &activations[0, 0], activations.shape[1]
        self.args.out = &out[0, 0]
        self.args.M, self.args.N, self.args.K, self.args.experts = M, N, K, E
        if sums is not None:
            self.args.sums = &sums[0]
        if scales is not None:
            self.args.scales = &scales[0]
        if types is not None:
            self.args.weight_type, self.args.activation_type = types
        if several is not None:
            self.args.several, self.args.together = <void *><uintptr_t>several[0], several[1]
        self.args.run.threads = threads
        self.args.run.bad = -1
        self.call.fn = tm_peer_vec_dot if types is None else tm_peer_iqk_mul_mat
        self.call.args = &self.args

    def run(self) -> None:
        """Runs once, without the GIL. Raises RuntimeError if the library has no product for these types."""
        with nogil:
            self.call.fn(self.call.args)
        if self.args.refused:
            raise RuntimeError(f"{self.name}: the library has no product for these types here")

    @property
    def ran(self) -> str:
        """The name; "" before the first run."""
        return self.name if self.args.run.runs else ""

    @property
    def runs(self) -> int:
        return self.args.run.runs

    @property
    def threads_used(self) -> int:
        return self.args.run.used

    @property
    def pointer(self) -> int:
        """Address of the bound call, for the native clock."""
        return <uintptr_t>&self.call
