"""Plans of the public functions' calls on the CPU: kernels are chosen and bound once, then run with other addresses.

A plan takes NumPy arrays of the dtypes and shapes that it was made for, C-contiguous and aligned. It declines anything
else: it returns None before anything is written. Its caller then takes the general path, which supports more or raises
what the contract requires. So a plan raises only MemoryError.

Arrays are inspected through the buffer protocol. A call costs about 0.2 us for each inspected array, 0.3 for a new one,
and 0.5 to check the choice of kernels; the general path takes 40 to 90 us.
"""

include "native.pxi"

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
)
from libc.math cimport isfinite
from libc.stdlib cimport calloc, free, getenv, malloc

from numpy import empty as _empty, float32 as _float32, int8 as _int8, int32 as _int32, ndarray as _ndarray

cdef extern from "src/host_plan/linear.h":
    enum: TM_OUT_INT32, TM_OUT_FLOAT32
    ctypedef struct tm_activation_quantize_args:
        tm_run run
        const void *x
        int8_t *q
        float *scale
        int32_t *sum
        size_t M
        size_t K
        size_t stride
    ctypedef struct tm_hadamard_quantize_args:
        const void *x
        void *out
        float *scale
        int32_t *sum
        size_t stride
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
        float weight_scale
        int32_t kind
        int32_t *act_sums
    ctypedef struct tm_linear_args:
        tm_run run
        tm_kernel quantize
        tm_kernel product
        void *first
        tm_ternary_matmul_args *second
        const float *bias
        int32_t rotates
    int tm_linear(void *args) noexcept nogil
    size_t tm_first_nonfinite(const float *x, size_t begin, size_t end) noexcept nogil

cdef extern from "src/ternary_matmul/experts.h":
    ctypedef struct tm_experts_args:
        tm_run run
        int32_t kind
        const int8_t *a
        const float *act_scale
        const int32_t *offsets
        void *out
        size_t lda
        size_t M
        size_t E
        size_t N
        size_t K

cdef enum:
    MOST_PLANS = 64
    MOST_ROOMLESS = 4096  # a few hundred bytes each
    MOST_EXACT = 1 << 24
    CACHE_LINE = 64


cdef bint look(object array, Py_buffer *view, char kind, bint writable) except -1:
    """Whether `array` is a NumPy array, no subclass, of the dtype with the buffer protocol's letter `kind`, aligned,
    with elements. If so, the view has to be released."""
    cdef int flags = PyBUF_FORMAT | PyBUF_STRIDES
    if type(array) is not _ndarray:
        return False
    if writable:
        flags |= PyBUF_WRITABLE
    try:
        PyObject_GetBuffer(array, view, flags)
    except (ValueError, BufferError):  # a dtype without a letter in the protocol, or a read-only array
        return False
    if view.format[0] != kind or view.format[1] or view.len == 0 or <uintptr_t>view.buf % <size_t>view.itemsize:
        PyBuffer_Release(view)
        return False
    return True


cdef bint contiguous(const Py_buffer *view, int first) noexcept:
    """Whether the axes from `first` are in C order."""
    cdef int axis
    cdef Py_ssize_t expected = view.itemsize
    for axis in range(view.ndim - 1, first - 1, -1):
        if view.shape[axis] != 1 and view.strides[axis] != expected:
            return False
        expected *= view.shape[axis]
    return True


cdef inline bint apart(uintptr_t begin, size_t size, uintptr_t other, size_t other_size) noexcept:
    return begin + size <= other or other + other_size <= begin


cdef inline bint positive(const float *values, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if not (isfinite(values[i]) and values[i] > 0):
            return False
    return True


cdef class Plans:
    """Plans by the arguments of a call other than arrays. They are valid while the inputs of the choice of a kernel are
    unchanged: the registry, its version, and environment variables."""

    cdef dict kept
    cdef tuple variables
    cdef list values
    cdef object registry
    cdef object version
    cdef Py_ssize_t most

    def __init__(self, *variables):
        self.most = MOST_PLANS
        self.variables = tuple([each.encode() for each in variables])
        self.values = [None] * len(variables)
        self.kept = {}

    def __reduce__(self):
        """A copy of the owner, in this process or another, makes its own plans."""
        return type(self), tuple([each.decode() for each in self.variables])

    cpdef bint current(self, object registry) except -1:
        """Whether nothing has changed; if something has, all plans are dropped."""
        cdef const char *found
        cdef object before
        cdef object version = registry.version
        cdef bint same = self.registry is registry and self.version == version
        cdef Py_ssize_t index
        for index in range(len(self.variables)):
            found = getenv(<bytes>self.variables[index])
            before = self.values[index]
            if found == NULL:
                if before is not None:
                    same, self.values[index] = False, None
            elif before is None or strcmp(found, <bytes>before) != 0:
                same, self.values[index] = False, <bytes>found
        if same:
            return True
        self.registry, self.version = registry, version
        self.kept.clear()
        return False

    def __contains__(self, key) -> bool:
        return key in self.kept

    def __len__(self) -> int:
        return len(self.kept)

    def keep(self, registry, key, plan) -> None:
        """Keeps a plan that was chosen by that registry since the last check, in place of the oldest if there are too
        many."""
        if self.current(registry):
            if len(self.kept) >= self.most:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = plan


cdef class ProductPlan:
    """ternary_matmul for M rows. `launch` is a TernaryMatmul of that shape, whose arrays of activations, scales and
    output are not used again. `weights` is the array that it reads, and `begin` to `end` the caller's own, which no
    output may overlap. A launch with `room` of its own is kept, and runs one call at a time."""

    cdef tm_kernel fn
    cdef tm_ternary_matmul_args args
    cdef object owners
    cdef uintptr_t begin
    cdef size_t size
    cdef bint alone
    cdef bint busy

    def __init__(self, launch, weights, uintptr_t begin, uintptr_t end, bint room):
        cdef tm_call *call = <tm_call *><uintptr_t>launch.pointer
        self.fn = call.fn
        self.args = (<tm_ternary_matmul_args *>call.args)[0]
        self.args.a, self.args.act_scale, self.args.out = NULL, NULL, NULL
        self.owners = (weights, launch if room else None)
        self.begin, self.size, self.alone = begin, end - begin, room

    cdef object run(self, const Py_buffer *rows, object act_scale, object out):
        """`out`, or a new array; None if it declines."""
        cdef tm_ternary_matmul_args args
        cdef Py_buffer scales, made
        cdef bint given = False
        cdef float value
        cdef float *filled = &value
        cdef size_t i
        cdef Py_ssize_t lda = self.args.K
        cdef size_t extent
        cdef tuple shape
        cdef object result = None
        if rows.ndim == 2 and rows.shape[0] > 1:
            lda = rows.strides[0]
        if lda < <Py_ssize_t>self.args.K or not contiguous(rows, rows.ndim - 1):
            return None
        extent = (self.args.M - 1) * lda + self.args.K
        # Like np.asarray(act_scale, float32), repeated for each row.
        if type(act_scale) is float or type(act_scale) is _float32:
            value = <float><double>act_scale
        elif type(act_scale) is int and 0 < act_scale <= MOST_EXACT:
            value = act_scale
        elif look(act_scale, &scales, b"f", False):
            given = scales.ndim == 1
            if given:
                if scales.shape[0] != <Py_ssize_t>self.args.M or not contiguous(&scales, 0):
                    PyBuffer_Release(&scales)
                    return None
                filled = <float *>scales.buf
            else:
                value = (<float *>scales.buf)[0]
                i = scales.ndim
                PyBuffer_Release(&scales)
                if i:
                    return None
        else:
            return None
        try:
            if not positive(filled, self.args.M if given else 1) or (self.alone and self.busy):
                return None
            if out is None:
                shape = (self.args.N,)
                if rows.ndim == 2:
                    shape = (self.args.M, self.args.N)
                result = _empty(shape, _int32 if self.args.kind == TM_OUT_INT32 else _float32)
            else:
                result = out
            if not look(result, &made, b"i" if self.args.kind == TM_OUT_INT32 else b"f", True):
                return None
            try:
                if (
                    made.ndim != rows.ndim
                    or made.shape[made.ndim - 1] != <Py_ssize_t>self.args.N
                    or (made.ndim == 2 and made.shape[0] != <Py_ssize_t>self.args.M)
                    or not contiguous(&made, 0)
                    or not apart(<uintptr_t>made.buf, made.len, <uintptr_t>rows.buf, extent)
                    or not apart(<uintptr_t>made.buf, made.len, self.begin, self.size)
                    or (given and not apart(<uintptr_t>made.buf, made.len, <uintptr_t>scales.buf, scales.len))
                ):
                    return None
                if not given and self.args.M > 1:
                    filled = <float *>malloc(self.args.M * sizeof(float))
                    if filled == NULL:
                        raise MemoryError()
                    for i in range(self.args.M):
                        filled[i] = value
                args = self.args
                args.a, args.lda = <const int8_t *>rows.buf, lda
                args.act_scale, args.out = filled, made.buf
                self.busy = True
                with nogil:
                    self.fn(&args)
                self.busy = False
                if not given and self.args.M > 1:
                    free(filled)
            finally:
                PyBuffer_Release(&made)
        finally:
            if given:
                PyBuffer_Release(&scales)
        return result


cdef class ProductPlans(Plans):
    """The plans of ternary_matmul with one matrix of weights."""

    def run(self, registry, activations, act_scale, dtype, out, variant, threads):
        """The product, or None if no plan takes these arguments."""
        cdef Py_buffer rows
        cdef ProductPlan plan
        cdef object result = None
        if not self.current(registry) or not look(activations, &rows, b"b", False):
            return None
        try:
            if rows.ndim == 1 or rows.ndim == 2:
                plan = self.kept.get(product_key(rows.shape[0] if rows.ndim == 2 else 1, dtype, variant, threads))
                if plan is not None and rows.shape[rows.ndim - 1] == <Py_ssize_t>plan.args.K:
                    result = plan.run(&rows, act_scale, out)
        finally:
            PyBuffer_Release(&rows)
        return result


cdef class ExpertsPlan:
    """ternary_matmul_experts for M rows. `launch` is a TernaryMatmulExperts of that shape, whose arrays are not used
    again, except weights and their scales. `begin` to `end` is the caller's own array of weights, which no output may
    overlap. The launch has room of its own, and runs one call at a time."""

    cdef tm_kernel fn
    cdef tm_experts_args args
    cdef object owners
    cdef uintptr_t begin
    cdef size_t size
    cdef bint busy

    def __init__(self, launch, weights, uintptr_t begin, uintptr_t end):
        cdef tm_call *call = <tm_call *><uintptr_t>launch.pointer
        self.fn = call.fn
        self.args = (<tm_experts_args *>call.args)[0]
        self.args.a, self.args.act_scale, self.args.offsets, self.args.out = NULL, NULL, NULL, NULL
        self.owners = (weights, launch)
        self.begin, self.size = begin, end - begin

    cdef object run(self, const Py_buffer *rows, const Py_buffer *scales, const Py_buffer *offsets, object out):
        """`out`, or a new array; None if it declines, and if the offsets are outside the contract."""
        cdef tm_experts_args args
        cdef Py_buffer made
        cdef Py_ssize_t lda = self.args.K
        cdef object result = None
        cdef bint wrong = False
        if rows.shape[0] > 1:
            lda = rows.strides[0]
        if (
            self.busy
            or lda < <Py_ssize_t>self.args.K
            or not contiguous(rows, 1)
            or scales.ndim != 1
            or scales.shape[0] != <Py_ssize_t>self.args.M
            or not contiguous(scales, 0)
            or not positive(<float *>scales.buf, scales.shape[0])
            or offsets.ndim != 1
            or offsets.shape[0] != <Py_ssize_t>self.args.E + 1
            or not contiguous(offsets, 0)
        ):
            return None
        if out is None:
            result = _empty((self.args.M, self.args.N), _int32 if self.args.kind == TM_OUT_INT32 else _float32)
        else:
            result = out
        if not look(result, &made, b"i" if self.args.kind == TM_OUT_INT32 else b"f", True):
            return None
        try:
            if (
                made.ndim != 2
                or made.shape[0] != <Py_ssize_t>self.args.M
                or made.shape[1] != <Py_ssize_t>self.args.N
                or not contiguous(&made, 0)
                or not apart(<uintptr_t>made.buf, made.len, <uintptr_t>rows.buf, (self.args.M - 1) * lda + self.args.K)
                or not apart(<uintptr_t>made.buf, made.len, self.begin, self.size)
                or not apart(<uintptr_t>made.buf, made.len, <uintptr_t>scales.buf, scales.len)
                or not apart(<uintptr_t>made.buf, made.len, <uintptr_t>offsets.buf, offsets.len)
            ):
                return None
            args = self.args
            args.a, args.lda = <const int8_t *>rows.buf, lda
            args.act_scale, args.offsets, args.out = <float *>scales.buf, <const int32_t *>offsets.buf, made.buf
            self.busy = True
            with nogil:
                self.fn(&args)
            self.busy = False
            wrong = args.run.bad >= 0
        finally:
            PyBuffer_Release(&made)
        return None if wrong else result


cdef class ExpertsPlans(Plans):
    """The plans of ternary_matmul_experts with the weights of experts."""

    def run(self, registry, activations, act_scale, dtype, out, variant, threads, offsets=None):
        """The products, or None if no plan takes these arguments."""
        cdef Py_buffer rows
        cdef Py_buffer scales
        cdef Py_buffer begins
        cdef ExpertsPlan plan
        cdef object result = None
        if not self.current(registry) or not look(activations, &rows, b"b", False):
            return None
        try:
            plan = None
            if rows.ndim == 2:
                plan = self.kept.get(product_key(rows.shape[0], dtype, variant, threads))
            if plan is not None and rows.shape[1] == <Py_ssize_t>plan.args.K and look(act_scale, &scales, b"f", False):
                try:
                    if look(offsets, &begins, b"i", False):
                        try:
                            result = plan.run(&rows, &scales, &begins, out)
                        finally:
                            PyBuffer_Release(&begins)
                finally:
                    PyBuffer_Release(&scales)
        finally:
            PyBuffer_Release(&rows)
        return result


cpdef object product_key(Py_ssize_t M, object dtype, object variant, object threads):
    """The key of a product's plan; None, which no plan has, for arguments that only the general path supports."""
    if (
        not (type(dtype) is str or type(dtype) is type)
        or not (variant is None or type(variant) is str)
        or not (threads is None or type(threads) is int)
    ):
        return None
    return M, dtype, variant, threads


cdef class QuantizePlan:
    """activation_quantize for (M, K). `launch` is an ActivationQuantize of that shape, which is not kept."""

    cdef tm_kernel fn
    cdef tm_activation_quantize_args args

    def __init__(self, launch):
        cdef tm_call *call = <tm_call *><uintptr_t>launch.pointer
        self.fn = call.fn
        self.args = (<tm_activation_quantize_args *>call.args)[0]


cdef class QuantizePlans(Plans):
    """The plans of activation_quantize."""

    def run(self, registry, x, out, variant, threads):
        """(q, scale, sum), in the arrays of `out` if that is not None. None if no plan takes these arguments or x is
        not finite; then `out` is not written."""
        cdef Py_buffer rows
        cdef Py_buffer views[3]
        cdef QuantizePlan plan
        cdef tm_activation_quantize_args args
        cdef Py_ssize_t K
        cdef int axis, held = 0, index
        cdef tuple shape, leading, arrays
        cdef bint fits = True
        if not self.current(registry) or not look(x, &rows, b"f", False):
            return None
        try:
            if not rows.ndim or not contiguous(&rows, 0):
                return None
            K = rows.shape[rows.ndim - 1]
            plan = self.kept.get(quantize_key(rows.len // rows.itemsize // K, K, variant, threads))
            if plan is None:
                return None
            args = plan.args
            shape = x.shape
            if out is None:
                leading = shape[: rows.ndim - 1]
                arrays = (_empty(shape, _int8), _empty(leading, _float32), _empty(leading, _int32))
            else:
                arrays = tuple(out)
                # `out` may be written only if x is finite.
                if tm_first_nonfinite(<const float *>rows.buf, 0, args.M * args.K) != args.M * args.K:
                    return None
            for index in range(3):
                if not look(arrays[index], &views[index], b"bfi"[index], True):
                    return None
                held += 1
                fits = fits and views[index].ndim == rows.ndim - (index > 0) and contiguous(&views[index], 0)
                fits = fits and apart(<uintptr_t>rows.buf, rows.len, <uintptr_t>views[index].buf, views[index].len)
                if not fits:
                    return None
                for axis in range(views[index].ndim):
                    if views[index].shape[axis] != rows.shape[axis]:
                        return None
            args.x, args.q = <const float *>rows.buf, <int8_t *>views[0].buf
            args.scale, args.sum, args.stride = <float *>views[1].buf, <int32_t *>views[2].buf, K
            with nogil:
                plan.fn(&args)
            return arrays if args.run.bad < 0 else None
        finally:
            for index in range(held):
                PyBuffer_Release(&views[index])
            PyBuffer_Release(&rows)


cpdef object quantize_key(Py_ssize_t M, Py_ssize_t K, object variant, object threads):
    """The key of a quantization's plan; see product_key."""
    if not (variant is None or type(variant) is str) or not (threads is None or type(threads) is int):
        return None
    return M, K, variant, threads


cdef class LinearCall(NativeCall):
    """QuantizedLinear bound to rows and an output. `quantize` is an ActivationQuantize, or if `rotates` a
    HadamardQuantize to int8, whose outputs are the activations and their scales of `product`, a TernaryMatmul to
    float32. The product runs only if `bad` reports that all rows are finite. Then `bias`, (N,), is added to each row."""

    cdef tm_linear_args linear
    cdef object product

    def __init__(self, quantize, product, const float[::1] bias=None, bint rotates=False):
        cdef tm_call *first = <tm_call *><uintptr_t>quantize.pointer
        cdef tm_call *second = <tm_call *><uintptr_t>product.pointer
        self.linear.quantize, self.linear.product = first.fn, second.fn
        self.linear.first = first.args
        self.linear.second = <tm_ternary_matmul_args *>second.args
        self.linear.rotates = rotates
        if bias is not None:
            if bias.shape[0] != <Py_ssize_t>self.linear.second.N:
                raise ValueError(f"a bias of {bias.shape[0]} elements for N = {self.linear.second.N}")
            self.linear.bias = &bias[0]
        self.linear.run.ran = self.linear.run.bad = -1
        self.call.fn, self.call.args = tm_linear, &self.linear
        self.product = product
        self.owners = (quantize, bias)

    def succeeds(self) -> bool:
        """Runs once; returns whether every row was finite."""
        with nogil:
            tm_linear(&self.linear)
        return self.linear.run.bad < 0

    @property
    def ran(self) -> str:
        """The instruction set whose product ran last, as that code recorded it; "" before the first run."""
        return self.product.ran


cdef int quantized_before(void *args) noexcept nogil:
    """In place of a quantization whose result is there."""
    return 0


ctypedef struct linears_args:
    tm_run run  # its `bad` is that of the step where the run ended
    size_t count
    size_t done  # steps without an element that is not finite
    tm_linear_args *each


cdef int run_linears(void *args) noexcept nogil:
    cdef linears_args *all = <linears_args *>args
    cdef tm_linear_args *step
    all.run.bad, all.done = -1, 0
    while all.done < all.count:
        step = &all.each[all.done]
        tm_linear(step)
        all.run.ran, all.run.used = step.run.ran, step.run.used
        all.run.bad = step.run.bad
        if step.run.bad >= 0:
            break
        all.done += 1
    all.run.runs += 1
    return 0


cdef class LinearsCall(NativeCall):
    """Several LinearCalls, run in order. `shared` reports for each whether its rows were quantized by the step before,
    with whose quantization it was made."""

    cdef linears_args linears

    def __cinit__(self):
        self.linears.each = NULL

    def __init__(self, calls, shared):
        cdef LinearCall one
        cdef size_t at = 0
        self.owners = tuple(calls)
        self.linears.count = len(self.owners)
        if not self.linears.count:
            raise ValueError("no calls to run")
        self.linears.each = <tm_linear_args *>calloc(self.linears.count, sizeof(tm_linear_args))
        if self.linears.each == NULL:
            raise MemoryError()
        for one, before in zip(self.owners, shared, strict=True):
            self.linears.each[at] = one.linear
            if before:
                if not at or self.linears.each[at - 1].first != one.linear.first:
                    raise ValueError(f"call {at} has a quantization of its own")
                self.linears.each[at].quantize = quantized_before
            at += 1
        self.linears.run.ran = self.linears.run.bad = -1
        self.call.fn, self.call.args = run_linears, &self.linears

    def __dealloc__(self):
        free(self.linears.each)

    def succeeds(self) -> bool:
        """Runs once; returns whether every row was finite."""
        with nogil:
            run_linears(&self.linears)
        return self.linears.run.bad < 0

    @property
    def done(self) -> int:
        """Calls of the last run before the first with an element that is not finite."""
        return self.linears.done


cdef class LinearPlan:
    """QuantizedLinear for M rows. `call` is a LinearCall of that shape; of its arrays only `weights`, `bias` and
    `constants` are used again. A call with room of its own is kept, and runs one at a time. With `sums`, the bytes that the sums of
    groups of activations need, each run has its own."""

    cdef tm_linear_args args
    cdef tm_activation_quantize_args first
    cdef tm_hadamard_quantize_args rotating  # in the place of `first` if the call rotates
    cdef tm_ternary_matmul_args second
    cdef object owners
    cdef bint alone
    cdef bint busy
    cdef size_t sums
    cdef readonly object variant
    cdef tm_run ran

    def __init__(self, LinearCall call, variant, weights, bias, bint room, size_t sums=0, constants=None):
        self.args, self.second = call.linear, call.linear.second[0]
        if call.linear.rotates:
            self.rotating = (<tm_hadamard_quantize_args *>call.linear.first)[0]
        else:
            self.first = (<tm_activation_quantize_args *>call.linear.first)[0]
        self.variant = variant
        self.owners = (weights, bias, constants, call if room else None)
        self.alone, self.sums = room, sums

    @property
    def rank(self) -> int:
        """Rank of the instruction set whose product ran last, as that code recorded it."""
        return self.ran.ran

    @property
    def runs(self) -> int:
        """Number of runs, counted by the code."""
        return self.ran.runs

    @property
    def threads_used(self) -> int:
        """Threads that took part in the last product."""
        return self.ran.used

    cdef object run(self, const Py_buffer *rows, object shape):
        """A new array of that shape with the leading axes of the rows, or None."""
        cdef Py_buffer made
        cdef bint done
        cdef object result = _empty(shape, _float32)
        if (self.alone and self.busy) or not look(result, &made, b"f", True):
            return None
        try:
            done = self.computed(rows.buf, self.second.weights, self.second.weight_scale, made.buf)
        finally:
            PyBuffer_Release(&made)
        return result if done else None

    def run_at(self, uintptr_t rows, uintptr_t weights, float weight_scale, uintptr_t out) -> bool:
        """Runs with rows, weights and output at these addresses, all C-contiguous, of the dtypes of the bound call.
        Returns whether all rows are finite; if not, the output is not written. For a plan without room of its own."""
        return self.computed(<void *>rows, <const uint8_t *>weights, weight_scale, <void *>out)

    cdef bint computed(self, const void *rows, const uint8_t *weights, float weight_scale, void *out) except -1:
        """Whether all rows are finite."""
        cdef tm_linear_args args = self.args
        cdef tm_activation_quantize_args first = self.first
        cdef tm_hadamard_quantize_args rotating = self.rotating
        cdef tm_ternary_matmul_args second = self.second
        cdef size_t M = second.M, K = second.K
        cdef size_t codes = (M * K + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
        cdef size_t scales = (M * (sizeof(float) + sizeof(int32_t)) + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
        cdef char *room = <char *>malloc(codes + scales + self.sums + CACHE_LINE)
        cdef int8_t *q
        cdef float *scale
        cdef int32_t *sums
        if room == NULL:
            raise MemoryError()
        q = <int8_t *>((<uintptr_t>room + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE)
        scale = <float *>(q + codes)
        sums = <int32_t *>(scale + M)
        if args.rotates:
            rotating.x, rotating.stride, rotating.out, rotating.scale, rotating.sum = rows, K, q, scale, sums
            args.first = &rotating
        else:
            first.x, first.stride, first.q, first.scale, first.sum = rows, K, q, scale, sums
            args.first = &first
        args.second = &second
        second.a, second.lda = q, K
        second.weights, second.weight_scale = weights, weight_scale
        second.act_scale, second.out = scale, out
        if self.sums:
            second.act_sums = <int32_t *>(q + codes + scales)
        self.busy = True
        with nogil:
            tm_linear(&args)
        self.busy = False
        free(room)
        if args.run.bad < 0:
            self.ran = args.run
        return args.run.bad < 0


cdef class AddressPlans(Plans):
    """Plans of layers without room of their own, which are run with addresses, by keys of their owners."""

    def __init__(self, *variables):
        super().__init__(*variables)
        self.most = MOST_ROOMLESS

    def get(self, registry, key):
        """The plan, or None."""
        return self.kept.get(key) if self.current(registry) else None


cdef class LinearPlans(Plans):
    """The plans of one layer, by M, while the values from its construction are unchanged."""

    cdef tuple told
    cdef public LinearPlan last
    """The plan that ran in the last call, unless the owner reports that another path ran since."""

    def run(self, registry, x, tuple told):
        """y, or None if no plan takes x or x is not finite. `told` are the layer's own objects on which a plan depends,
        compared by identity."""
        cdef Py_buffer rows
        cdef LinearPlan plan
        cdef object result = None
        cdef Py_ssize_t K
        cdef tuple shape
        cdef bint same = self.current(registry)
        if not self.tells(told) or not same or not look(x, &rows, b"f", False):
            return None
        try:
            if 1 <= rows.ndim <= 3 and contiguous(&rows, 0):
                K = rows.shape[rows.ndim - 1]
                plan = self.kept.get(rows.len // rows.itemsize // K)
                if plan is not None and K == <Py_ssize_t>plan.second.K:
                    if rows.ndim == 1:
                        shape = (plan.second.N,)
                    elif rows.ndim == 2:
                        shape = (rows.shape[0], plan.second.N)
                    else:
                        shape = (rows.shape[0], rows.shape[1], plan.second.N)
                    result = plan.run(&rows, shape)
        finally:
            PyBuffer_Release(&rows)
        if result is not None:
            self.last = plan
        return result

    cdef bint tells(self, tuple told) except -1:
        cdef Py_ssize_t index
        if self.told is not None and len(told) == len(self.told):
            for index in range(len(told)):
                if told[index] is not self.told[index]:
                    break
            else:
                return True
        self.told = told
        self.kept.clear()
        return False
