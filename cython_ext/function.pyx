"""Calls of users' C functions, by their addresses."""

include "native.pxi"

cdef extern from "src/function/function.h":
    enum:
        TM_INTEGERS
        TM_FLOATS
        TM_WORDS
    ctypedef struct tm_function_args:
        tm_run run
        void *function
        int64_t integers[TM_INTEGERS]
        double floats[TM_FLOATS]
        int64_t words[TM_WORDS]
    tm_kernel tm_function_kernel(size_t words)


cdef class FunctionCall:
    """A C function bound to its arguments, for the native clock. `name` is reported as the kernel that ran.

    Each of `arguments` is 8 bytes, as in a register (an integer extended, a float in the low bytes), and whether it is
    a floating-point number. None is the address of `bad`, an int64_t that is -1 before each call. Raises ValueError for
    a null address and for too many arguments.
    """

    cdef tm_function_args args
    cdef tm_call call
    cdef str name
    cdef object owners

    def __init__(self, str name, uintptr_t address, arguments, int threads, owners):
        cdef Py_ssize_t integers = 0, floats = 0, words = 0
        cdef int64_t word
        if not address or threads < 1:
            raise ValueError(f"{name} at {address}, {threads} threads; legal: an address that is not null, at least 1")
        for argument in arguments:
            floating, held = (False, None) if argument is None else argument
            word = <int64_t><uintptr_t>&self.args.run.bad if held is None else int.from_bytes(held, "little", signed=True)
            if floating and floats < TM_FLOATS:
                (<int64_t *>self.args.floats)[floats] = word
                floats += 1
            elif not floating and integers < TM_INTEGERS:
                self.args.integers[integers] = word
                integers += 1
            elif words < TM_WORDS:
                self.args.words[words] = word
                words += 1
            else:
                raise ValueError(f"{name} has {len(arguments)} arguments; legal: {TM_WORDS} beside those in registers")
        self.name, self.owners = name, owners
        self.args.function = <void *>address
        self.args.run.threads, self.args.run.ran, self.args.run.bad = threads, -1, -1
        self.call.fn, self.call.args = tm_function_kernel(words), &self.args

    def run(self) -> None:
        """Calls it once, without the GIL."""
        with nogil:
            self.call.fn(self.call.args)

    @property
    def ran(self) -> str:
        """The name; "" before the first call."""
        return self.name if self.args.run.runs else ""

    @property
    def runs(self) -> int:
        return self.args.run.runs

    @property
    def threads_used(self) -> int:
        return self.args.run.used

    @property
    def bad(self) -> int:
        """The value of `bad` after the last call; -1 if the function does not get its address."""
        return self.args.run.bad

    @property
    def pointer(self) -> int:
        """Address of the bound call, for the native clock."""
        return <uintptr_t>&self.call
