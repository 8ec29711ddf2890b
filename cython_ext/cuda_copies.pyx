"""Copies of arrays between the host's memory and a GPU's over several lanes at once, and round trips with launches
between: src/cuda_copies. Python threads would wait for each other between the pieces.

The driver is called by the addresses of its functions, so building and importing this needs no CUDA.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint64_t, uintptr_t

cdef extern from "<sched.h>":
    ctypedef struct cpu_set_t:
        pass
    void CPU_ZERO(cpu_set_t *cores)
    void CPU_SET(int core, cpu_set_t *cores)
    enum:
        CPU_SETSIZE

cdef extern from "src/cuda_copies/cuda_copies.h":
    ctypedef struct tm_copy_driver:
        int (*enter)(void *context) noexcept nogil
        int (*up)(uint64_t to, const void *start, size_t bytes, void *stream) noexcept nogil
        int (*down)(void *to, uint64_t start, size_t bytes, void *stream) noexcept nogil
        int (*wait)(void *stream) noexcept nogil
    ctypedef struct tm_copy_lane:
        void *streams[2]
        char *buffers[2]
    ctypedef struct tm_copy:
        tm_copy_driver driver
        void *context
        cpu_set_t cores
        const tm_copy_lane *lanes
        size_t lane_count
        int up
        char *host
        uint64_t device
        size_t bytes
        size_t piece
    int tm_copy_run(const tm_copy *copy) nogil

cdef extern from "src/cuda_copies/round_trip.h":
    ctypedef struct tm_trip_array:
        char *host
        uint64_t device
        size_t bytes
    ctypedef struct tm_trip_launch:
        void *function
        unsigned int grid[3]
        unsigned int block[3]
        unsigned int shared
        const void *arguments
        size_t argument_bytes
    ctypedef struct tm_trip:
        int (*launch)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                      unsigned int, void *, void **, void **) noexcept nogil
        int (*attributes)(unsigned int count, int *wanted, void **into, uint64_t address) noexcept nogil
        int (*fill)(uint64_t to, unsigned char byte, size_t bytes, void *stream) noexcept nogil
        const tm_copy *there
        const tm_copy *back
        const tm_trip_array *inputs
        const tm_trip_array *outputs
        size_t input_count
        size_t output_count
        const tm_trip_launch *launches
        size_t launch_count
        uint64_t bad
    ctypedef struct tm_trip_done:
        uint64_t bad
        size_t up
        size_t down
        size_t down_bytes
    int tm_trip_run(const tm_trip *trip, tm_trip_done *done) nogil

cdef enum:
    MOST = 16


cdef class CopyLanes:
    """Lanes of two pinned buffers of `piece` bytes each, with a stream for each buffer.

    `driver` has the addresses of cuCtxSetCurrent, cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuStreamSynchronize,
    cuLaunchKernel, cuPointerGetAttributes and cuMemsetD8Async. `context` is the handle of the streams' context, which
    has to be current here. `lanes` are pairs of the handles of two streams and the addresses of two buffers; `cores`
    are those on which threads may run.
    """

    cdef tm_copy copy
    cdef tm_copy_lane *lanes
    cdef uintptr_t launch, attributes, fill

    def __cinit__(self, driver, uintptr_t context, lanes, size_t piece, cores):
        cdef uintptr_t enter, up, down, wait, value
        if not piece or not lanes:
            raise ValueError(f"{len(lanes)} lanes of {piece} bytes; legal: at least 1 of each")
        enter, up, down, wait, self.launch, self.attributes, self.fill = driver
        self.copy.driver.enter = <int (*)(void *) noexcept nogil>enter
        self.copy.driver.up = <int (*)(uint64_t, const void *, size_t, void *) noexcept nogil>up
        self.copy.driver.down = <int (*)(void *, uint64_t, size_t, void *) noexcept nogil>down
        self.copy.driver.wait = <int (*)(void *) noexcept nogil>wait
        self.copy.context, self.copy.piece = <void *>context, piece
        CPU_ZERO(&self.copy.cores)
        for core in cores:
            if core < CPU_SETSIZE:
                CPU_SET(core, &self.copy.cores)
        self.lanes = <tm_copy_lane *>PyMem_Calloc(len(lanes), sizeof(tm_copy_lane))
        if self.lanes == NULL:
            raise MemoryError()
        for number, (streams, buffers) in enumerate(lanes):
            for slot in range(2):
                value = streams[slot]
                self.lanes[<size_t>number].streams[<size_t>slot] = <void *>value
                value = buffers[slot]
                self.lanes[<size_t>number].buffers[<size_t>slot] = <char *>value
        self.copy.lanes, self.copy.lane_count = self.lanes, len(lanes)

    def __dealloc__(self):
        PyMem_Free(self.lanes)

    def send(self, uintptr_t address, size_t nbytes, uint64_t pointer) -> int:
        """Copies `nbytes` at an address of the host to the device's `pointer`, without the GIL; complete on return.
        Returns the driver's CUresult, 0 for success."""
        return self._run(True, address, nbytes, pointer)

    def fetch(self, uintptr_t address, size_t nbytes, uint64_t pointer) -> int:
        """Copies from the device, likewise."""
        return self._run(False, address, nbytes, pointer)

    cdef int _run(self, bint up, uintptr_t address, size_t nbytes, uint64_t pointer):
        cdef tm_copy copy = self.copy
        cdef int code
        copy.up, copy.host, copy.bytes, copy.device = up, <char *>address, nbytes, pointer
        with nogil:
            code = tm_copy_run(&copy)
        return code

    def round_trip(
        self, inputs, launches, uint64_t bad, outputs, CopyLanes back not None
    ) -> tuple[int, int, int, int, int]:
        """Copies inputs to the device, sets the eight bytes at `bad` to all ones, launches, and copies outputs back
        unless the launches changed these bytes. Runs without the GIL, complete on return, one call at a time for these
        lanes and those of `back`. Outputs use the lanes of `back` if all inputs are in pinned memory.

        `inputs` and `outputs` are (address, bytes, the device's pointer). The device copies pinned ones itself, others
        use lanes. `launches` are (handle of the function, grid, block, bytes of dynamic shared memory, arguments as
        bytes). Returns the CUresult (0: success), the value at `bad`, the copies there and back, and the bytes copied
        back. Raises ValueError for more than 16 inputs, launches or outputs.
        """
        cdef tm_trip_array ups[MOST]
        cdef tm_trip_array downs[MOST]
        cdef tm_trip_launch steps[MOST]
        cdef tm_trip trip
        cdef tm_trip_done done
        cdef uintptr_t address
        cdef const unsigned char *arguments
        cdef int code
        if max(len(inputs), len(launches), len(outputs)) > MOST:
            raise ValueError(f"{len(inputs)} inputs, {len(launches)} launches, {len(outputs)} outputs; "
                             f"legal: at most {MOST} of each")
        for number, (place, nbytes, pointer) in enumerate(inputs):
            address = place
            ups[<size_t>number] = tm_trip_array(<char *>address, pointer, nbytes)
        for number, (place, nbytes, pointer) in enumerate(outputs):
            address = place
            downs[<size_t>number] = tm_trip_array(<char *>address, pointer, nbytes)
        for number, (function, grid, block, shared, given) in enumerate(launches):
            address, arguments = function, given
            steps[<size_t>number].function = <void *>address
            for axis in range(3):
                steps[<size_t>number].grid[<size_t>axis] = grid[axis]
                steps[<size_t>number].block[<size_t>axis] = block[axis]
            steps[<size_t>number].shared = shared
            steps[<size_t>number].arguments = arguments
            steps[<size_t>number].argument_bytes = len(given)
        trip.launch = <int (*)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                               unsigned int, unsigned int, void *, void **, void **) noexcept nogil>self.launch
        trip.attributes = <int (*)(unsigned int, int *, void **, uint64_t) noexcept nogil>self.attributes
        trip.fill = <int (*)(uint64_t, unsigned char, size_t, void *) noexcept nogil>self.fill
        trip.there, trip.back = &self.copy, &back.copy
        trip.inputs, trip.input_count = ups, len(inputs)
        trip.outputs, trip.output_count = downs, len(outputs)
        trip.launches, trip.launch_count = steps, len(launches)
        trip.bad = bad
        with nogil:
            code = tm_trip_run(&trip, &done)
        return code, done.bad, done.up, done.down, done.down_bytes
