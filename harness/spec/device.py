"""Device: a kind of hardware that variants run on, with its memory, copies, clock and ceilings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec.access import AccessTracing
from tritmark.harness.spec.launch import Launch, Proof
from tritmark.harness.spec.op import Arrays, Axes, KernelKey, Op
from tritmark.harness.spec.stats import DeviceStats
from tritmark.harness.spec.variant import Variant


class Memory(Protocol):
    """The memory of a device's kernels: NumPy arrays on the host, handles with `shape` and `dtype` on a device."""

    @property
    def cache(self) -> int | None:
        """Bytes of the last cache before this memory; None if unknown."""

    def available(self) -> int:
        """Bytes that can still be allocated."""

    def allocate(self, nbytes: int) -> Any:
        """A flat uint8 array of undefined content, aligned to at least 256 bytes. It is freed with its last view. On a
        device it is not a NumPy array."""

    def view(
        self, buffer: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Any:
        """An array within `buffer`, from byte `offset`; C-contiguous unless `strides` (bytes) are given."""

    def write(self, array: Any, values: Any) -> None:
        """Copy a C-contiguous NumPy array of the same size in bytes into a C-contiguous array of this memory."""

    def read(self, array: Any, into: Any) -> None:
        """Copy a C-contiguous array of this memory into a C-contiguous NumPy array of the same size in bytes."""

    def watch(self) -> Any:
        """A context manager that counts bytes allocated since its start, or None if the memory does not count. Inside,
        `held` is the current count; afterwards, `peak` is the largest."""


class Pipelined(Protocol):
    """The result of DeviceTransfers.pipelined or run."""

    @property
    def launches(self) -> Sequence[Launch]:
        """The launches that ran. Each may have run many chunks."""

    @property
    def bad(self) -> int:
        """As Launch.bad, over all chunks."""


class DeviceTransfers(Protocol):
    """How the public functions copy NumPy arrays to a device's own memory and results back."""

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """Check before work that arrays of these sizes in bytes fit together. Allocates nothing. Raises
        InsufficientMemoryError, which names `what`."""

    def upload(self, values: Any) -> Any:
        """A C-contiguous copy of a NumPy array, of any strides, on the device; complete on return."""

    def run(self, launch: Launch, inputs: Sequence[tuple[Any, Any]], outputs: Sequence[tuple[Any, Any]]) -> Pipelined:
        """Copy inputs to the device, run a launch that is bound to them, and copy outputs back. If an input element is
        forbidden by the contract, outputs are not copied.

        `inputs` and `outputs` are pairs of a device array and a NumPy array of the same shape and dtype, of any
        strides."""

    def download(self, array: Any, into: Any) -> Any:
        """Copy a device array into a NumPy array of its shape and dtype, of any strides. Returns `into`."""

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Pipelined | None:
        """Run a variant over NumPy arrays in chunks: one is computed while others are copied. Returns None and does
        nothing if that does not pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTimes:
    """Times of the threads that a device's kernels share, summed over some calls; nanoseconds."""

    wall_ns: int
    """From the beginning of the first call to the end of the last."""
    busy_ns: int
    """Processor time of all threads in the kernel's work, without waiting and without time off a core."""
    shared: int
    """Number of times that several threads took part in shared work. The next two are summed over these times."""
    mean_ns: int
    """Mean processor time of the threads that took part."""
    most_ns: int
    """Processor time of the busiest thread."""


CArgument = tuple[bool, bytes] | None
"""One argument of a C function: whether it is a floating-point number, and its 8 bytes as in a register. None: the
address of the launch's `bad`."""


class FunctionBinder(Protocol):
    """Binds C functions to their arguments."""

    def __call__(self, name: str, address: int, arguments: Sequence[CArgument], threads: int, owners: object) -> Launch:
        """The function at that address as a launch with a `pointer`. `ran` is `name`, `threads_used` is `threads`, and
        `bad` is the value that the function wrote (-1 before each call). `owners` live as long as the launch."""


class Clock(Protocol):
    """Times launches without the cost of the Python call."""

    name: str

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`. Returns their total
        nanoseconds."""


@dataclass(frozen=True, slots=True)
class ArrayChange:
    """Bytes that are copied between two calls."""

    to: Any
    """uint8 (rows, bytes), each row contiguous; on a device one row."""
    source: npt.NDArray[np.uint8]
    """The same shape, C-contiguous, on the host."""


@runtime_checkable
class ChangingClock(Clock, Protocol):
    """A clock of the host that can change arrays between two calls. The change is so quick that a kernel cannot detect
    it by the time since the last call."""

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
        """Like `sample`, after `warm` launches that are not timed. `changes` are made before timed launch `before` (0
        to `calls`), and their time is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A rate that the machine can reach, measured by a probe that is bound and timed like a kernel.

    `bind(buffer, threads)` returns the probe over a uint8 buffer. `work(nbytes)` is the number of units that one run
    over `nbytes` does.
    """

    name: str
    unit: str
    summary: str
    bind: Callable[[Any, int], Launch]
    work: Callable[[int], int]
    level: str = ""
    """Scope of a rate that belongs to no cache, memory or register, such as "CUDA graph" for launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetching:
    """Prefetch strategies of an op's kernels, from which `tritmark tune prefetch` measures the fastest (see
    harness.autotune.prefetch).

    `strategies()` returns their names, the built-in one first. `plain` is the strategy without software prefetch.
    `use(name)` sets the strategy of the op's kernels in this process for later calls; "" restores the one from process
    start. `used()` returns the current one. `key` and `shapes` define the timed calls: the best variant of the key with
    these axes. `identity()`: the conditions under which a measurement holds, such as "device" and "code".
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
    """The limit of a process: a step of Masking. `files` contain the code that must not find features above this step,
    as far as known."""

    step: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Hides hardware features in a process, so that code which queries features takes the paths of lesser machines.

    `steps()` returns the possible limits in falling order, each with the steps above it that this machine has.
    `missing()` returns why no process can be limited here, or None. `begin(held)` limits this process permanently; call
    it before third-party code is loaded. It returns the sources that still reveal the features, each with the reason.
    It raises DeviceUnavailableError if the limit cannot be set.
    """

    steps: Callable[[], Mapping[str, tuple[str, ...]]]
    missing: Callable[[], str | None]
    begin: Callable[[HeldTo], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How one of several devices of a kind is chosen by its number: TYPE:0, TYPE:1; TYPE alone is the first.

    `count()` is the number of devices, 0 if the kind is missing. `title(index)` is a device's display name.
    `at(index)` makes it the current device of this thread while the context lasts. `alone(index)` returns environment
    variables for a process that sees only this device.
    """

    count: Callable[[], int]
    title: Callable[[int], str]
    at: Callable[[int], AbstractContextManager[None]]
    alone: Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of device that variants run on: its features, memory, clock, ceilings, and how it proves what ran.

    Timing:

    - `clock()` times launches. None: nothing on the device is timed.
    - `plain_clock()` times launches that are submitted one by one, if `clock()` records them in a graph. A clock that
      does not always record a graph reports it in `recorded`. None: no graphs.
    - `ceilings` has probes named "read" and "write" (bytes/s) and "compute" (operations/s), and may have more. Several
      may share a name: the ceiling is the fastest for a footprint and thread count.
    - `simulated()`: a simulator replaces the device, so nothing on it has a speed.
    - `tracing`: a simulator that traces the accesses of the device's kernels to memory. None: there is none.
    - `losing(launch)`: the environment in which a simulator replaces the device, and the device is lost at that launch
      (1 for the first) of each process, for `tritmark soak`. None if there is no such simulator.
    - `thread_times(calls)` calls `calls()`, which runs kernels, and returns the times of their threads. It returns None
      if the kernels shared no work among threads that the device knows, as when they create their own threads. The
      field is None if the device has no such threads.

    Selection:

    - `forced()`: the only variant that automatic selection may take, or None.
    - `ladder()`: names of variants for hardware steps, such as instruction sets, in rising order, with the features
      that each needs. If an op has no variant for the forced step, its best variant below is taken.
    - `prefetching()`: the ops with a choice of prefetch strategies on this device.
    - `identity()`: the conditions, beside the code, under which a measured choice between variants holds: "device" and
      everything else that their times depend on. None: variants are not chosen by measurement.
    - `source_hash(variant id)`: a hash of all that the variant's code is made from, for such choices; "" if unknown.
      None: `code_hash` takes no time. A device whose `code_hash` compiles needs it.

    Identity:

    - `missing()` returns why the device cannot be used here and the next step, or None.
    - `code_hash(variant id)`: the SHA-256 of the compiled code with the variant. `compiler()`: its compiler. Both are
      "" if unknown.
    - `proof(launch)`: the facts that the launcher collected. None: the launch itself reports everything.
    - `units()` names each unit of this kind in the machine, as in `Proof.uuid`. () for the host, and if the units are
      the GPUs that the driver lists.
    - `numbering` distinguishes the devices of this kind; None: they are not distinguished.
    - `environment()`: variables for processes that work on this device.

    Memory:

    - `memory()`: the device's own memory; None: kernels use host memory.
    - `transfers()`: how the public functions copy arrays to the device and back; None: through `memory()` alone.
    - `stats()`: counts of this process's work on the device and figures of its memory pool, without starting the
      device. None: not counted.
    - `memory_problems()`: why the device's memory and this process's pool are not in order; empty for none. None: not
      checked.
    - `placed(bytes, node)`: a copy of an array's bytes in the memory of that NUMA node, for kernels in host memory.
      None: placement is not possible.

    Users' code:

    - `adopt(manifest)` makes variants from a user's file that only this device understands (see harness.candidate).
      None: it takes no files.
    - `function` binds users' C functions as launches that `clock()` times like the device's own; None: not supported.
    - `masking` hides features in processes; None: not supported.
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
    tracing: AccessTracing | None = None
    losing: Callable[[int], Mapping[str, str]] | None = None
    memory: Callable[[], Memory] | None = None
    transfers: Callable[[], DeviceTransfers] | None = None
    plain_clock: Callable[[], Clock] | None = None
    proof: Callable[[Launch], Proof | None] = lambda launch: None
    units: Callable[[], Sequence[str]] = tuple
    adopt: Callable[[Any], Sequence[Variant]] | None = None
    ladder: Callable[[], Mapping[str, frozenset[str]]] = dict
    stats: Callable[[], DeviceStats] | None = None
    memory_problems: Callable[[], Sequence[str]] | None = None
    numbering: Numbering | None = None
    environment: Callable[[], Mapping[str, str]] = dict
    prefetching: Callable[[], Sequence[Prefetching]] = tuple
    identity: Callable[[], Mapping[str, str]] | None = None
    source_hash: Callable[[str], str] | None = None
    placed: Callable[[Any, int], Any] | None = None
    thread_times: Callable[[Callable[[], object]], ThreadTimes | None] | None = None
    function: FunctionBinder | None = None
    masking: Masking | None = None
