"""Device: what variants run on, with its memory, its copies, its clock and its ceilings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec.launch import Launch, Proof
from tritmark.harness.spec.op import Arrays, Axes, KernelKey, Op
from tritmark.harness.spec.variant import Variant


class Memory(Protocol):
    """Where a device's kernels find their arrays: NumPy arrays on the host, handles with `shape` and `dtype` on a
    device."""

    @property
    def cache(self) -> int | None:
        """Bytes of the last cache before this memory; None where that is not known."""

    def available(self) -> int:
        """Bytes that can still be allocated."""

    def allocate(self, nbytes: int) -> Any:
        """A flat uint8 array of undefined content, aligned to at least 256 bytes; its memory goes back when the last
        view of it is gone. On a device it is no NumPy array."""

    def view(
        self, buffer: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Any:
        """An array within `buffer`, from byte `offset`; C-contiguous unless `strides` (bytes) are given."""

    def write(self, array: Any, values: Any) -> None:
        """Copy a C-contiguous NumPy array of the same size in bytes into a C-contiguous array of this memory."""

    def read(self, array: Any, into: Any) -> None:
        """Copy a C-contiguous array of this memory into a C-contiguous NumPy array of the same size in bytes."""

    def watch(self) -> Any:
        """A context manager whose `peak` tells, once it was left, the most bytes that were allocated within it
        beyond what was before, and whose `held` tells within it what is allocated beyond that now; None where that
        is not counted."""


class Pipelined(Protocol):
    """What DeviceTransfers.pipelined or run did."""

    @property
    def launches(self) -> Sequence[Launch]:
        """Those that ran, each perhaps for many chunks."""

    @property
    def bad(self) -> int:
        """As Launch.bad, over all chunks."""


class DeviceTransfers(Protocol):
    """How the public functions bring NumPy arrays to a device's own memory and results back."""

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """Before work, which allocates nothing: raise InsufficientMemoryError, which names `what`, where arrays of
        so many bytes each do not all fit."""

    def upload(self, values: Any) -> Any:
        """A C-contiguous copy of a NumPy array, of any strides, on the device; complete on return."""

    def run(self, launch: Launch, inputs: Sequence[tuple[Any, Any]], outputs: Sequence[tuple[Any, Any]]) -> Pipelined:
        """Copy NumPy arrays, of any strides, into arrays of their shapes and dtypes on the device, run a launch that
        is bound to these, and copy arrays of the device back, unless there is an element that the contract forbids.
        `inputs` and `outputs` are pairs of the device's array and NumPy's."""

    def download(self, array: Any, into: Any) -> Any:
        """Copy an array of the device into a NumPy array of its shape and dtype, and of any strides, which is
        returned."""

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Pipelined | None:
        """Run a variant over NumPy arrays in chunks, one computed while others are copied; None, and nothing was
        done, where that is not worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTimes:
    """What the threads that a device's kernels share did in some calls; nanoseconds over all of them."""

    wall_ns: int
    """From the beginning of the first call to the end of the last."""
    busy_ns: int
    """Processor time of all threads in the kernel's work; waiting for each other, or without a core, is none."""
    shared: int
    """How many times work was shared out and several threads took part. Of these times, summed:"""
    mean_ns: int
    """the processor time of the threads that took part, their mean,"""
    most_ns: int
    """and that of the one that had the most."""


CArgument = tuple[bool, bytes] | None
"""One argument of a C function: whether it is a floating-point number, and 8 bytes as a register holds it; None is the
address of the launch's `bad`."""


class FunctionBinder(Protocol):
    """Binds C functions to their arguments."""

    def __call__(self, name: str, address: int, arguments: Sequence[CArgument], threads: int, owners: object) -> Launch:
        """The function at that address as a launch with a `pointer`: `ran` is `name`, `threads_used` is `threads`,
        `bad` what the function left there (-1 before each call). `owners` live as long as the launch."""


class Clock(Protocol):
    """Times launches without the cost of the Python call."""

    name: str

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds for all of them."""


@dataclass(frozen=True, slots=True)
class ArrayChange:
    """Bytes that are copied between two calls."""

    to: Any
    """uint8 (rows, bytes), in rows without gaps; on a device one row."""
    source: npt.NDArray[np.uint8]
    """Of the same shape, C-contiguous, on the host."""


@runtime_checkable
class ChangingClock(Clock, Protocol):
    """A clock of the host that can change arrays between two calls, so quickly that a kernel which tells how long ago
    it was called does not tell such a call from others."""

    def sample_around(
        self,
        launches: Sequence[Launch],
        first: int,
        calls: int,
        before: int,
        changes: Sequence[ArrayChange],
        *,
        warm: int = 0,
    ) -> int:
        """The same behind `warm` launches more, which are not timed, with `changes` made before timed launch `before`
        (0 to `calls`), in none of the nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A rate that the machine can reach, measured by a probe that is bound and timed like a kernel.

    `bind(buffer, threads)` gives the probe over a uint8 buffer; `work(nbytes)` is how many units one run over that many
    bytes does.
    """

    name: str
    unit: str
    summary: str
    bind: Callable[[Any, int], Launch]
    work: Callable[[int], int]
    level: str = ""
    """Where it holds, for a rate of no cache, no memory and no register: such as "CUDA graph" for launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetching:
    """How an op's kernels fetch ahead what may come from memory, for those who measure which way is the fastest (see
    harness.autotune.prefetch).

    `strategies()` names the ways, first the one that is built in; `plain` is that of them which leaves it all to the
    hardware. `use(name)` has the op's kernels in this process work that way from their next calls on, "" as they were
    when the process began. `used()` is how they work now. `key` and `shapes` are what is timed: axes of calls of the
    key's best variant. `identity()`: what a finding holds for, as "device" and "code".
    """

    key: KernelKey
    shapes: Sequence[Axes]
    plain: str
    strategies: Callable[[], Sequence[str]]
    use: Callable[[str], None]
    used: Callable[[], str]
    identity: Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class HeldTo:
    """What a process is held to: a step of Masking. `files` have the code that is to find nothing above it, as far as
    that is known."""

    step: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Processes in which code that asks for the hardware's features finds fewer than there are, so that it takes the
    paths that it would take elsewhere.

    `steps()` are what a process can be held to, in falling order, each with the steps above it that are here.
    `missing()` says why none can be here, or None. `begin(held)` holds this process for good, before code of others is
    loaded; it gives what tells of the features all the same, with the reason, and raises DeviceUnavailableError where
    it is not held.
    """

    steps: Callable[[], Mapping[str, tuple[str, ...]]]
    missing: Callable[[], str | None]
    begin: Callable[[HeldTo], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How one of several devices of a kind is chosen by its number, as TYPE:0, TYPE:1; TYPE alone is the first.

    `count()` is how many there are, 0 where the kind is missing; `title(index)` what that one is, for people;
    `at(index)` makes it the one that this thread's calls are for, while the context lasts; `alone(index)` are
    environment variables of a process that is to work on it and see no other.
    """

    count: Callable[[], int]
    title: Callable[[int], str]
    at: Callable[[int], AbstractContextManager[None]]
    alone: Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of device that variants run on: what it can do, how arrays get there, how it is timed, what its ceilings
    are, and how it proves what ran.

    `clock()` times launches; without one, None, nothing on the device is timed. `ceilings` has probes named "read" and
    "write" (bytes/s) and "compute" (operations/s), and may have more. Several may share a name: the fastest for a
    footprint and number of threads is the ceiling. `forced()` names the only variant that automatic selection may take,
    or None. `ladder()` has the names of variants that stand for steps of the hardware, such as instruction sets, in
    rising order with the features that each needs: where an op has no variant for the step that is forced, its best one
    below is taken. `code_hash(variant id)` is the SHA-256 of the compiled code that holds the variant, `compiler()`
    what it was compiled with; both "" where the device cannot tell. `missing()` says why the device cannot be used here
    and what to do about it, or None. `simulated()`: a simulator stands in for it, so nothing on it has a speed.
    `plain_clock()` times launches handed over one by one where `clock()` has them in a graph (and says so by
    `recorded`, if it does not always), None where there are no graphs. `memory()` is the device's own memory, None
    where kernels work on the host's. `transfers()` is how the public functions copy arrays there and back, None where
    they take `memory()` alone for it. `proof(launch)` is what the launcher collected, None where the launch tells all
    there is. `units()` names each unit of this kind in the machine, as a proof has it in `uuid`; () where these are the
    GPUs that the driver tells of, and for the host. `adopt(manifest)` makes variants of a user's file that only this
    device understands (see harness.candidate), None where it takes no files. `numbering` tells the devices of this kind
    apart, None where they are not; `environment()` has variables that processes which work on this device need.
    `prefetching()` are the ops whose kernels here fetch ahead in ways that can be told.
    `identity()` is what a measured choice between variants holds for beside their code, as "device" and whatever else
    their times hang on; None where variants are not chosen by measurement.
    `placed(bytes, node)` is a copy of an array's bytes in the memory of that NUMA node, of a device whose kernels work
    on the host's memory; None where nobody can tell it where to lie.
    `thread_times(calls)` calls `calls()`, which runs kernels, and tells what threads did in them: None where they
    shared no work among threads that the device knows of, as those that bring threads of their own; it is None itself
    where the device has no such threads.
    `function` binds C functions of users as launches that `clock()` times like the device's own; None where the device
    calls none.
    `masking` has processes find fewer features; None where that cannot be done.
    """

    type: str
    summary: str
    features: Callable[[], frozenset[str]]
    cores: Callable[[], int]
    clock: Callable[[], Clock] | None = None
    ceilings: Callable[[], Mapping[str, Ceiling]] = dict
    forced: Callable[[], str | None] = lambda: None
    code_hash: Callable[[str], str] = lambda variant_id: ""
    compiler: Callable[[], str] = lambda: ""
    missing: Callable[[], str | None] = lambda: None
    simulated: Callable[[], bool] = lambda: False
    memory: Callable[[], Memory] | None = None
    transfers: Callable[[], DeviceTransfers] | None = None
    plain_clock: Callable[[], Clock] | None = None
    proof: Callable[[Launch], Proof | None] = lambda launch: None
    units: Callable[[], Sequence[str]] = tuple
    adopt: Callable[[Any], Sequence[Variant]] | None = None
    ladder: Callable[[], Mapping[str, frozenset[str]]] = dict
    numbering: Numbering | None = None
    environment: Callable[[], Mapping[str, str]] = dict
    prefetching: Callable[[], Sequence[Prefetching]] = tuple
    identity: Callable[[], Mapping[str, str]] | None = None
    placed: Callable[[Any, int], Any] | None = None
    thread_times: Callable[[Callable[[], object]], ThreadTimes | None] | None = None
    function: FunctionBinder | None = None
    masking: Masking | None = None
