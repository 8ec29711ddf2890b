"""Boundary of the ceilings' probes."""

from libc.stdint cimport uint64_t

include "native.pxi"

cdef extern from "src/ceilings/ceilings.h":
    ctypedef struct tm_probe_args:
        tm_run run
        uint8_t *data
        size_t nbytes
        int32_t kind
        uint64_t checksum
    const tm_entry tm_probe[]
    enum: TM_DOTS

KINDS = (
    "read",
    "read ahead",
    "read streams",
    "read nta",
    "write",
    "write around",
    "write around streams",
    "write string",
    "copy",
    "copy around",
    "compute",
)
"""In the order of ceilings.h."""

DOT_OPERATIONS = 128 * TM_DOTS
"""Operations of the "compute" probe for each byte of its buffer: a multiply-add is two."""


cdef class Probe(NativeCall):
    """One probe over `data`, uint8 (n,), n >= 1, aligned to 64 bytes. For a copy n is a multiple of 128, for compute at
    least 64."""

    cdef tm_probe_args args

    def __init__(self, str isa, str kind, uint8_t[::1] data, int threads):
        if kind not in KINDS:
            raise ValueError(f"no probe {kind!r}; legal: {', '.join(KINDS)}")
        self.args.kind = KINDS.index(kind)
        if data.shape[0] < (64 if kind == "compute" else 1) or <uintptr_t>&data[0] % 64:
            raise ValueError(
                f"{kind}: {data.shape[0]} bytes at {<uintptr_t>&data[0]:#x}; legal: aligned to 64 bytes, "
                "at least 1 byte, for compute 64"
            )
        if kind.startswith("copy") and data.shape[0] % 128:
            raise ValueError(f"{kind}: {data.shape[0]} bytes; legal: a multiple of 128")
        self.args.data = &data[0]
        self.args.nbytes = data.shape[0]
        self.bind(tm_probe, isa, &self.args, threads, data)

    @property
    def checksum(self) -> int:
        """The checksum of the last run: see ceilings.h."""
        return self.args.checksum
