"""Boundary of the ternary_matmul kernels."""

include "native.pxi"

cdef enum:
    CACHE_LINE = 64

cdef extern from "src/prefetch.h":
    enum: TM_PREFETCH_LINE, TM_PREFETCH_MOST, TM_PREFETCH_NONE, TM_PREFETCH_L1, TM_PREFETCH_L2
    int tm_prefetch_tell(int32_t level, int32_t bytes, bint tiles_alone)
    void tm_prefetch_reset()
    ctypedef struct tm_prefetch:
        int32_t level
        int32_t bytes

cdef extern from "src/ternary_matmul/ternary_matmul.h":
    tm_prefetch tm_tiles_prefetch()
    tm_prefetch tm_weights_prefetch(tm_prefetch elsewhere)
    const tm_prefetch tm_weights_plain

cdef extern from "src/ternary_matmul/formats.h":
    enum: TM_OUT_INT32, TM_OUT_FLOAT32, TM_OUT_BFLOAT16
    ctypedef struct tm_ternary_matmul_args:
        tm_run run
        const int8_t *a
        const uint8_t *weights
        const float *act_scale
        void *out
        size_t lda
        size_t M
        size_t N
        size_t K
        int32_t *act_sums
        float weight_scale
        int32_t kind
        uint8_t *tables
        size_t group
        size_t BM
        size_t BK
        size_t bm
    ctypedef struct tm_matmul_format:
        const char *name
        const tm_entry *kernels
        size_t (*bytes)(size_t N, size_t K) noexcept nogil
        size_t group
        size_t (*room)(size_t M, size_t K) noexcept nogil
        size_t (*tables)(const tm_ternary_matmul_args *args) noexcept nogil
    const tm_matmul_format *tm_matmul_format_named(const char *name)
    size_t tm_matmul_stack(
        const tm_matmul_format *format, int32_t rank, size_t M, size_t N, size_t K, size_t threads)


cdef extern from "src/ternary_matmul/experts.h":
    ctypedef struct tm_experts_args:
        tm_run run
        tm_kernel kernel
        int32_t rank
        int32_t kind
        const tm_matmul_format *format
        const int8_t *a
        const uint8_t *weights
        const float *weight_scale
        const float *act_scale
        const int32_t *offsets
        void *out
        size_t lda
        size_t expert_bytes
        size_t M
        size_t E
        size_t N
        size_t K
        int32_t *act_sums
        size_t *costs
    int tm_experts(void *args) noexcept nogil


LEVELS = {"none": TM_PREFETCH_NONE, "L1": TM_PREFETCH_L1, "L2": TM_PREFETCH_L2}
DISTANCES = range(TM_PREFETCH_LINE, TM_PREFETCH_MOST + 1, TM_PREFETCH_LINE)


def tell_prefetch(str level, int distance, bint tiles_alone=False) -> None:
    """Sets the prefetch of this module's kernels, those over tile64 only or all: `distance` bytes ahead into that
    cache, from their next calls."""
    if tm_prefetch_tell(LEVELS[level], distance, tiles_alone):
        raise ValueError(f"a prefetch of {distance} bytes into {level}; legal: multiples of 64 up to 65536, none: 0")


def reset_prefetch() -> None:
    """Restores the kernels' defaults."""
    tm_prefetch_reset()


def prefetch(bint tiles=True) -> tuple[str, int]:
    """The prefetch of kernels over tile64, or else of those over tq2_0: the level, one of LEVELS, and the distance in
    bytes."""
    cdef tm_prefetch now = tm_tiles_prefetch() if tiles else tm_weights_prefetch(tm_weights_plain)
    return next(name for name, level in LEVELS.items() if level == now.level), now.bytes


cdef const tm_matmul_format *_known(str format) except NULL:
    cdef const tm_matmul_format *known = tm_matmul_format_named(format.encode())
    if known == NULL:
        raise ValueError(f"no kernel for {format} is compiled in")
    return known


def room(str format, size_t M, size_t K) -> int:
    """Bytes that a call needs for sums of the activations and reordered activations."""
    cdef const tm_matmul_format *known = _known(format)
    return known.room(M, K) if known.group else 0


def stack(str format, int rank, size_t M, size_t N, size_t K, int threads) -> int:
    """Most bytes of stack that the threads of a format's kernel use, including the caller's packed activations; `rank`
    is that of the instruction set."""
    return tm_matmul_stack(_known(format), rank, M, N, K, threads)


cdef class TernaryMatmul(NativeCall):
    """out (M, N) from activations int8 (M, K), whose rows are contiguous and may lie apart, and `weights`, an (N, K)
    matrix in the bytes of `format`.

    `layout` is (BM, BK, bm) for formats in tiles, whose kernels use look-up tables of the activations.

    `out` is int32, float32, or bfloat16 as uint16, and contiguous. `act_scale` float32 (M,) is ignored for int32, which
    formats with a scale for each group do not support.
    """

    cdef tm_ternary_matmul_args args
    cdef readonly str format

    def __init__(
        self, str format, str isa, const int8_t[:, :] activations, const uint8_t[::1] weights, Py_ssize_t N,
        float weight_scale,
        const float[::1] act_scale, out, int threads, layout=(0, 0, 0),
    ):
        cdef Py_ssize_t M = activations.shape[0], K = activations.shape[1]
        cdef int32_t[:, ::1] out_int32
        cdef float[:, ::1] out_float32
        cdef uint16_t[:, ::1] out_bfloat16
        cdef uint8_t[::1] room, tables
        cdef const tm_matmul_format *known = _known(format)
        cdef size_t needed
        if M < 1 or N < 1 or K < 1 or (K > 1 and activations.strides[1] != 1) or activations.strides[0] < 0:
            raise ValueError(f"activations of shape {M, K}, N = {N}; legal: contiguous rows, all at least 1")
        needed = known.bytes(N, K)
        if needed == 0 or <size_t>weights.shape[0] < needed or out.shape != (M, N) or act_scale.shape[0] != M:
            raise ValueError(
                f"{weights.shape[0]} bytes of {format}, output {out.shape}, {act_scale.shape[0]} scales for "
                f"M, N, K = {M, N, K}; legal: at least {needed} bytes (0: no such shape), output (M, N), M scales"
            )
        self.format = format
        self.args.M, self.args.N, self.args.K = M, N, K
        sums = spare = None
        if known.tables != NULL:
            self.args.BM, self.args.BK, self.args.bm = layout
            needed = known.tables(&self.args)
            if needed == 0:
                raise ValueError(f"{format} with a layout of {layout} for N, K = {N, K}; legal: a layout of the format")
            spare = bytearray(needed + CACHE_LINE - 1)
            tables = spare
            self.args.tables = <uint8_t *>((<uintptr_t>&tables[0] + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE)
        self.args.group = known.group
        if known.group:
            if out.dtype.kind == "i":
                raise ValueError(f"{format} has a scale for each group, so no int32 sums; legal: a float output")
            sums = bytearray(known.room(M, K))
            room = sums
            self.args.act_sums = <int32_t *>&room[0]
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
        self.args.weights = &weights[0]
        self.args.act_scale = &act_scale[0]
        self.args.weight_scale = weight_scale
        self.bind(known.kernels, isa, &self.args, threads, (activations, weights, act_scale, out, sums, spare))


cdef class TernaryMatmulExperts(NativeCall):
    """Rows offsets[e] to offsets[e + 1] of out (M, N) from those of activations int8 (M, K), whose rows are contiguous
    and may lie apart, and row e of `weights`, uint8 (E, bytes): an (N, K) matrix in the bytes of `format`, one with
    tiles of 64 rows.

    `weight_scale` is float32 (E,), `act_scale` float32 (M,), `offsets` int32 (E + 1,). Each run checks the offsets:
    `bad` is the index of the first that does not ascend from 0 to M, and nothing is written. `out` is as in
    TernaryMatmul.
    """

    cdef tm_experts_args args
    cdef readonly str format

    def __init__(
        self, str format, str isa, const int8_t[:, :] activations, const uint8_t[:, ::1] weights, Py_ssize_t N,
        const float[::1] weight_scale, const float[::1] act_scale, const int32_t[::1] offsets, out, int threads,
    ):
        cdef Py_ssize_t M = activations.shape[0], K = activations.shape[1], E = weights.shape[0]
        cdef int32_t[:, ::1] out_int32
        cdef float[:, ::1] out_float32
        cdef uint16_t[:, ::1] out_bfloat16
        cdef uint8_t[::1] room, costs
        cdef const tm_matmul_format *known = _known(format)
        cdef const tm_entry *entry
        cdef size_t needed
        if not format.startswith("tile64"):
            raise ValueError(f"weights in {format}; legal: tile64, tile64_g32 to tile64_g256")
        if (
            M < 1 or N < 1 or K < 1 or E < 1 or (K > 1 and activations.strides[1] != 1) or activations.strides[0] < 0
        ):
            raise ValueError(f"activations of shape {M, K}, E, N = {E, N}; legal: contiguous rows, all at least 1")
        needed = known.bytes(N, K)
        if (
            needed == 0 or <size_t>weights.shape[1] < needed or out.shape != (M, N) or act_scale.shape[0] != M
            or weight_scale.shape[0] != E or offsets.shape[0] != E + 1
        ):
            raise ValueError(
                f"{weights.shape[1]} bytes of {format}, output {out.shape}, {act_scale.shape[0]} and "
                f"{weight_scale.shape[0]} scales, {offsets.shape[0]} offsets for M, E, N, K = {M, E, N, K}; legal: at "
                f"least {needed} bytes (0: no such shape), output (M, N), M and E scales, E + 1 offsets"
            )
        self.format = format
        self.args.format = known
        self.args.M, self.args.E, self.args.N, self.args.K = M, E, N, K
        sums = None
        if known.group:
            if out.dtype.kind == "i":
                raise ValueError(f"{format} has a scale for each group, so no int32 sums; legal: a float output")
            sums = bytearray(known.room(M, K))
            room = sums
            self.args.act_sums = <int32_t *>&room[0]
        counts = bytearray((E + 1) * sizeof(size_t))
        costs = counts
        self.args.costs = <size_t *>&costs[0]
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
        self.args.weights = &weights[0, 0]
        self.args.expert_bytes = weights.strides[0]
        self.args.weight_scale = &weight_scale[0]
        self.args.act_scale = &act_scale[0]
        self.args.offsets = &offsets[0]
        owners = (activations, weights, weight_scale, act_scale, offsets, out, sums, counts)
        self.bind(known.kernels, isa, &self.args, threads, owners)
        entry = known.kernels
        while entry.fn != self.call.fn:
            entry += 1
        self.args.kernel = entry.fn
        self.args.rank = entry.isa.rank
        self.call.fn = tm_experts
