"""Tasks of the memory dimension in a candidate's process: bind, run, drop, and report readings that only the process
has."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import prod
from time import perf_counter, sleep
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.measure.buffers import HOST, memory_of
from tritmark.harness.measure.ceilings import start_threads
from tritmark.harness.measure.heap import allocated, faults, held, settle, trim
from tritmark.harness.spec import Arrays, Axes, Device, Launch, Op, Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.guards import ALIGNMENT
from tritmark.harness.worker.peak import small_pages, touch

Kind = Literal["call", "launch", "nothing", "touch", "workspace"]
""""call": a run of one launch. "launch": a launch that is bound, run and dropped. "nothing": no kernel. "touch": KNOWN
bytes of memory. "workspace": the declared workspace."""

_BENCH = "memory bench"
_PILOT_S = 0.005
_INDEX = 8


class Place(Protocol):
    """The place in which tasks run: a Site, or an object with the same attributes."""

    @property
    def op(self) -> Op:
        """The contract."""

    @property
    def device(self) -> Device:
        """The device of the kernel."""

    variant: Variant
    kept: dict[str, Any]


@dataclass(slots=True)
class LocalPlace:
    """A place in this process."""

    op: Op
    device: Device
    variant: Variant
    kept: dict[str, Any] = field(default_factory=dict)


class MemoryBaseline(NamedTuple):
    """Facts before anything is bound; bytes."""

    inputs: int
    outputs: int
    workspace: int
    own_memory: bool
    simulated: bool
    small_pages: bool
    """Whether no page becomes a huge page meanwhile."""
    modules: frozenset[str]
    """Imported modules."""


class MemoryReading(NamedTuple):
    """Readings that the process reports after some work: bytes, None if not reported."""

    heap: int | None
    device: int | None
    faults: int | None
    """Pages touched for the first time during the work."""


class _Bench:
    """Its own arrays, and the work on them. `stack` ends contexts that last as long."""

    def __init__(self, site: Place, inputs: Arrays, axes: Axes, threads: int) -> None:
        self.variant, self.axes, self.threads = site.variant, axes, threads
        self.device, self.memory = site.device, memory_of(site.device)
        there = {name: value for name, value in inputs.items() if is_array(value)}
        like = {
            name: (shape, named_dtype(dtype))
            for name, (shape, dtype) in site.op.outputs_like(axes, site.variant.key).items()
        }
        alignment = max(ALIGNMENT, site.variant.alignment)
        self.inputs = sum(value.nbytes for value in there.values())
        self.outputs = sum(prod(shape) * dtype.itemsize for shape, dtype in like.values())
        # All arrays are written now, so no launch is charged for the pages of its arguments.
        self._takes = {
            **inputs,
            **{name: self._placed(np.ascontiguousarray(value), alignment) for name, value in there.items()},
        }
        self._gives = {name: self._placed(np.zeros(shape, dtype), alignment) for name, (shape, dtype) in like.items()}
        self.launch: Launch | None = None
        self.stack = ExitStack()
        gc.freeze()  # the search for cycles skips existing objects, and so takes no time
        self.stack.callback(gc.unfreeze)
        self.watch = self.stack.enter_context(self.memory.watch())
        self.obeyed = self.stack.enter_context(small_pages())

    def bind(self) -> Launch:
        return self.variant.bind(self._takes, self._gives, self.axes, self.threads)

    def work(self, kind: Kind) -> Callable[[], object]:
        """The work of one repetition."""
        if kind == "call":
            self.launch = self.launch or self.bind()
            return self.launch.run
        workspace = self.variant.workspace(self.axes)
        works: dict[Kind, Callable[[], object]] = {
            "launch": lambda: self.bind().run(),
            "nothing": lambda: _Nothing(self._takes, self._gives).run(),
            "touch": touch,
            # As a launch would allocate it, with memory for the index that it reports (see Launch.bad).
            "workspace": lambda: tuple(self.memory.allocate(nbytes) for nbytes in (workspace, _INDEX) if nbytes),
        }
        return works[kind]

    def _placed(self, values: npt.NDArray[Any], alignment: int) -> Any:
        """A copy of the array where the device's kernels expect it."""
        if self.memory is not HOST:
            made = self.memory.view(self.memory.allocate(max(1, values.nbytes)), 0, values.shape, values.dtype)
            self.memory.write(made, values)
            return made
        raw = np.empty(values.nbytes + alignment, np.uint8)
        array: npt.NDArray[Any] = np.ndarray(values.shape, values.dtype, raw, -raw.ctypes.data % alignment)
        array[...] = values
        return array


class _Nothing:
    """A launch of a kernel that does nothing."""

    def __init__(self, inputs: Arrays, outputs: Arrays) -> None:
        self._kept = inputs, outputs

    def run(self) -> None:
        """Do nothing."""


def prepare(site: Place, inputs: Arrays, axes: Axes, threads: int, modules: tuple[str, ...] = ()) -> MemoryBaseline:
    """Make the arrays after importing `modules`. `inputs` are encoded for the variant's format."""
    for name in modules:
        with suppress(Exception):  # the candidate's own modules cannot be imported here
            importlib.import_module(name)
    release(site)
    bench = site.kept[_BENCH] = _Bench(site, inputs, axes, threads)
    return MemoryBaseline(
        bench.inputs,
        bench.outputs,
        site.variant.workspace(axes),
        bench.memory is not HOST,
        site.device.simulated(),
        bench.obeyed,
        frozenset(sys.modules),
    )


def release(site: Place) -> None:
    """Release the arrays and the contexts around them."""
    bench: _Bench | None = site.kept.pop(_BENCH, None)
    if bench is not None:
        bench.stack.close()


def probe(site: Place) -> None:
    """Start as many threads as a call may use, so that their memory exists from then on."""
    start_threads(site.device, _bench(site).threads)


def once(site: Place, kind: Kind) -> None:
    """Do the work once."""
    _bench(site).work(kind)()


def several(site: Place, kind: Kind, times: int) -> None:
    """Do the work `times` times, and free after each the objects that it left to Python."""
    work = _bench(site).work(kind)
    for _ in range(times):
        work()
        settle()


def settled(site: Place) -> tuple[int | None, frozenset[str]]:
    """Free the memory that Python and malloc keep for later. Returns the held memory of the device, and the imported
    modules."""
    settle()
    trim()
    return _bench(site).watch.held, frozenset(sys.modules)


def pilot(site: Place, kind: Kind) -> tuple[int, float]:
    """Number of repetitions within some milliseconds, and the seconds that they took."""
    work, calls, begun = _bench(site).work(kind), 0, perf_counter()
    while (seconds := perf_counter() - begun) < _PILOT_S:
        work()
        calls += 1
    return calls, seconds


def batch(site: Place, kind: Kind, times: int, seconds: float = 0.0) -> MemoryReading:
    """Do the work `times` times, wait `seconds`, and report the held memory."""
    bench = _bench(site)
    work, before = bench.work(kind), faults()
    for _ in range(times):
        work()
    touched = None if before is None else (faults() or 0) - before
    if seconds:
        sleep(seconds)
    settle()
    now = held()
    return MemoryReading(None if now is None else now.heap, bench.watch.held, touched)


def traced(site: Place) -> int:
    """Memory that Python and NumPy allocate for a call."""
    return allocated(_bench(site).work("call"))


def device_peak(site: Place, kind: Kind) -> int | None:
    """Peak of the device's memory during the work."""
    bench = _bench(site)
    with bench.memory.watch() as seen:
        bench.work(kind)()
    reported: int | None = seen.peak
    return reported


def _bench(site: Place) -> _Bench:
    bench: _Bench = site.kept[_BENCH]
    return bench
