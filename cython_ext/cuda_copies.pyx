"""Copies of arrays between the host's memory and a GPU's over several lanes at once: src/cuda_copies. Threads of Python
would wait for each other between the pieces.

The driver is called by the addresses of its functions, so that nothing of CUDA is needed to build or import this.
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


cdef class CopyLanes:
    """Lanes of two pinned buffers of `piece` bytes each, with a stream for each buffer.

    `driver` has the addresses of cuCtxSetCurrent, cuMemcpyHtoDAsync, cuMemcpyDtoHAsync and cuStreamSynchronize;
    `context` is the handle of the streams' one, which has to be current where this is called. `lanes` are pairs of the
    handles of two streams and the addresses of two buffers; `cores` those on which threads may run.
    """

    cdef tm_copy copy
    cdef tm_copy_lane *lanes

    def __cinit__(self, driver, uintptr_t context, lanes, size_t piece, cores):
        cdef uintptr_t enter, up, down, wait, value
        if not piece or not lanes:
            raise ValueError(f"{len(lanes)} lanes of {piece} bytes; legal: at least 1 of each")
        enter, up, down, wait = driver
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
        """Copy so many bytes at that address to the device's `pointer`, without the GIL; complete on return. The
        driver's CUresult, 0 where all went well."""
        return self._run(True, address, nbytes, pointer)

    def fetch(self, uintptr_t address, size_t nbytes, uint64_t pointer) -> int:
        """The other way."""
        return self._run(False, address, nbytes, pointer)

    cdef int _run(self, bint up, uintptr_t address, size_t nbytes, uint64_t pointer):
        cdef tm_copy copy = self.copy
        cdef int code
        copy.up, copy.host, copy.bytes, copy.device = up, <char *>address, nbytes, pointer
        with nogil:
            code = tm_copy_run(&copy)
        return code
