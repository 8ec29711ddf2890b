"""Launches of CUDA kernels that are prepared once and enqueued with other addresses each time.

The driver is called by the addresses of its functions, so building and importing this needs no CUDA.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

ctypedef int (*context_out)(void **context) noexcept nogil
ctypedef int (*context_in)(void *context) noexcept nogil
ctypedef int (*encode_tiled)(
    void *map, int dtype, unsigned rank, uint64_t address, uint64_t *sizes, uint64_t *apart, unsigned *box,
    unsigned *steps, int interleave, int swizzle, int promotion, int fill,
) noexcept nogil

# As cuda.h has them.
cdef struct launch_attribute:  # CUlaunchAttribute
    int id
    int padding
    int value[16]

cdef struct launch_config:  # CUlaunchConfig
    unsigned grid[3]
    unsigned block[3]
    unsigned shared
    void *stream
    launch_attribute *attributes
    unsigned attribute_count

ctypedef int (*launch_kernel)(
    launch_config *config, void *function, void **parameters, void **extra,
) noexcept nogil

cdef enum:
    PROGRAMMATIC_STREAM_SERIALIZATION = 6
    MOST_VALUES = 128
    MOST_SOURCES = 16
    SCALAR = -1
    MOST_MAPS = 4
    MAP_BYTES = 128
    MAP_ALIGNED = 64

cdef struct planned_step:
    void *function
    unsigned grid[3]
    unsigned block[3]
    unsigned shared
    bint overlaps
    int first

cdef struct planned_value:
    uint64_t bits
    int source
    int patched


cdef struct planned_map:
    int value
    int source  # -1: the map is made already
    uint64_t offset
    uint64_t sizes[2]
    uint64_t apart
    unsigned box[2]
    int swizzle
    unsigned char made[MAP_BYTES]


cdef class CudaPlan:
    """The launches `steps`, in their order, in the context with handle `context`.

    `driver` has the addresses of cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, cuLaunchKernelEx and
    cuTensorMapEncodeTiled (0 if the driver has none). A step is (function's handle, grid, block, bytes of dynamic
    shared memory, whether it may begin before the previous launch has ended, values). A value is bytes (1 to 8, as the
    kernel takes them, or the 128 of a tensor map); a pair (source, offset) for the address `addresses[source]` of a
    launch, `offset` bytes further; the same with TensorMap.numbers for the map of a matrix there; or None for the
    float32 `scalar` of a launch. `alignments` has for each source the power of two of which its addresses must be
    multiples. Raises ValueError for other values.
    """

    cdef context_out current
    cdef context_in push
    cdef context_out pop
    cdef launch_kernel launcher
    cdef encode_tiled encode
    cdef void *context
    cdef planned_map *maps
    cdef int map_count
    cdef planned_step *steps
    cdef planned_value *values
    cdef uint64_t masks[MOST_SOURCES]
    cdef int step_count
    cdef int value_count
    cdef int source_count

    def __cinit__(self, driver, uintptr_t context, steps, alignments):
        cdef uintptr_t current, push, pop, launcher, encode, handle
        cdef planned_map *map
        cdef planned_step *step
        cdef planned_value *value
        cdef bytes raw
        current, push, pop, launcher, encode = driver
        self.encode = <encode_tiled>encode
        self.current, self.push = <context_out>current, <context_in>push
        self.pop, self.launcher = <context_out>pop, <launch_kernel>launcher
        self.context = <void *>context
        self.step_count, self.source_count = len(steps), len(alignments)
        self.value_count = sum(len(values) for *_, values in steps)
        if self.value_count > MOST_VALUES or self.source_count > MOST_SOURCES:
            raise ValueError(f"{self.value_count} values and {self.source_count} sources; legal: at most "
                             f"{MOST_VALUES} and {MOST_SOURCES}")
        for index, alignment in enumerate(alignments):
            if alignment < 1 or alignment & (alignment - 1):
                raise ValueError(f"alignment {alignment}; legal: a power of two")
            self.masks[<int>index] = alignment - 1
        self.steps = <planned_step *>PyMem_Calloc(self.step_count or 1, sizeof(planned_step))
        self.values = <planned_value *>PyMem_Calloc(self.value_count or 1, sizeof(planned_value))
        self.maps = <planned_map *>PyMem_Calloc(MOST_MAPS, sizeof(planned_map))
        if self.steps == NULL or self.values == NULL or self.maps == NULL:
            raise MemoryError()
        value = self.values
        for index, (function, grid, block, shared, overlaps, values) in enumerate(steps):
            step = &self.steps[<int>index]
            handle = function
            step.function = <void *>handle
            step.grid[0], step.grid[1], step.grid[2] = grid
            step.block[0], step.block[1], step.block[2] = block
            step.shared = shared
            step.overlaps = overlaps
            step.first = value - self.values
            for each in values:
                if each is None:
                    value.patched, value.source = 1, SCALAR
                elif len(each) == (MAP_BYTES if isinstance(each, bytes) else 3):
                    if self.map_count == MOST_MAPS:
                        raise ValueError(f"more than {MOST_MAPS} tensor maps; legal: at most {MOST_MAPS}")
                    map = &self.maps[self.map_count]
                    self.map_count += 1
                    map.value, map.source = value - self.values, -1
                    if isinstance(each, bytes):
                        raw = each
                        memcpy(map.made, <const char *>raw, MAP_BYTES)
                    else:
                        map.source, map.offset, (
                            map.sizes[0], map.sizes[1], map.apart, map.box[0], map.box[1], map.swizzle
                        ) = each
                        if not 0 <= map.source < self.source_count:
                            raise ValueError(f"source {map.source} of {self.source_count}")
                        if not encode:
                            raise ValueError("a tensor map, which this driver cannot make")
                elif isinstance(each, bytes):
                    raw = each
                    if not 1 <= len(raw) <= 8:
                        raise ValueError(f"a value of {len(raw)} bytes; legal: 1 to 8")
                    memcpy(&value.bits, <const char *>raw, len(raw))
                else:
                    value.patched, (value.source, value.bits) = 1, each
                    if not 0 <= value.source < self.source_count:
                        raise ValueError(f"source {value.source} of {self.source_count}")
                value += 1

    def __dealloc__(self):
        PyMem_Free(self.maps)
        PyMem_Free(self.steps)
        PyMem_Free(self.values)

    def launch(self, uintptr_t stream, tuple addresses, float scalar=0.0) -> int:
        """Enqueues all launches into the stream, without the GIL and without waiting; returns the driver's CUresult, 0
        for success. The context is current during the call.

        Raises ValueError for another number of addresses, and for an address that is not aligned; then nothing is
        launched.
        """
        cdef uint64_t bits[MOST_VALUES]
        cdef void *parameters[MOST_VALUES]
        cdef uint64_t given[MOST_SOURCES]
        cdef planned_step *step
        cdef void *before = NULL
        cdef int index, code = 0
        cdef bint pushed = False
        cdef unsigned char room[MOST_MAPS * MAP_BYTES + MAP_ALIGNED]
        cdef unsigned char *made = room + (-<uintptr_t>room) % MAP_ALIGNED
        cdef planned_map *map
        cdef unsigned[2] ones = [1, 1]
        cdef launch_attribute attribute
        cdef launch_config config
        if len(addresses) != self.source_count:
            raise ValueError(f"{len(addresses)} addresses; legal: {self.source_count}")
        for index in range(self.source_count):
            given[index] = addresses[index]
            if given[index] & self.masks[index]:
                raise ValueError(f"address {index} is {given[index]:#x}; legal: a multiple of {self.masks[index] + 1}")
        with nogil:
            memset(&attribute, 0, sizeof(attribute))
            memset(&config, 0, sizeof(config))
            attribute.id, attribute.value[0] = PROGRAMMATIC_STREAM_SERIALIZATION, 1
            config.stream, config.attributes = <void *>stream, &attribute
            for index in range(self.value_count):
                parameters[index] = &bits[index]
                bits[index] = self.values[index].bits
                if self.values[index].patched:
                    if self.values[index].source == SCALAR:
                        memcpy(&bits[index], &scalar, sizeof(float))
                    else:
                        bits[index] += given[self.values[index].source]
            for index in range(self.map_count):
                map = &self.maps[index]
                parameters[map.value] = made + index * MAP_BYTES
                if map.source < 0:
                    memcpy(made + index * MAP_BYTES, map.made, MAP_BYTES)
                elif not code:
                    # Two dimensions of bytes, not interleaved; L2 fetches 128 bytes; elements outside are 0.
                    code = self.encode(
                        made + index * MAP_BYTES, 0, 2, given[map.source] + map.offset, map.sizes, &map.apart, map.box,
                        ones, 0, map.swizzle, 2, 0,
                    )
            if not code:
                code = self.current(&before)
            if not code and before != self.context:
                code = self.push(self.context)
                pushed = not code
            for index in range(self.step_count):
                if code:
                    break
                step = &self.steps[index]
                config.grid, config.block = step.grid, step.block
                config.shared, config.attribute_count = step.shared, step.overlaps
                code = self.launcher(&config, step.function, &parameters[step.first], NULL)
            if pushed:
                self.pop(&before)
        return code
