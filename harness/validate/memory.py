"""The memory dimension: what calls take beyond their arguments, what they keep, and what they lose.

`observe` runs where the candidate runs and only takes readings; `judged` says what they mean.

Peaks: a launch is bound, run and dropped a few times, and the least of the peaks counts, as others in the process can only add. The very
first launch is left out: it also brings code, threads and tables into memory, which `persistent` tells. What the system's own count of
pages may be off by, or more where the same procedure shows more of a call that does nothing, is its floor: only what lies above the
declared workspace and the floor is held against a kernel, and an overhead only where the inputs are more than the floor. On a device with a
memory of its own that memory is judged, and the host's is told.

Leaks: readings of the heap, of the mappings beside it and of the device's memory between up to MOST_CALLS calls of one launch, and between
launches that are bound, run and dropped. Theil and Sen's slope through all readings is judged by its 95 % interval. Where something grew,
the search is made again, and as long without calls: a kernel that fills a cache once does not grow twice, and what grows by itself is not
the kernel's.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.measure.buffers import HOST, memory_of
from tritmark.harness.measure.heap import allocated, faults, held, settle
from tritmark.harness.measure.peak import UnreadableError, floor, peak
from tritmark.harness.record import MemoryUse, Slope, Status
from tritmark.harness.spec import Arrays, Axes, Device, KernelKey, Launch, Memory, Op, Values, Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.guards import ALIGNMENT

MOST_CALLS = 10_000
STEPS = 20
"""Readings in a search, beside the first. So many calls are made in any case."""
BUDGET_S = 0.25
"""What the calls of a search may take beyond that."""
OVERHEAD = 2.0
"""Beyond inputs and outputs a call takes less than this times its inputs (specification 001), where these are more than the floor."""

_PEAKS = 3
_MOST_PEAKS = 12
_PILOT_S = 0.005
_LEVEL = 0.95
_INDEX = 8
_SERIES = ("heap", "mapped", "device")


@dataclass(frozen=True, slots=True)
class Search:
    """Readings between calls, or between launches; bytes, None where nothing is told."""

    made: array[int]
    """Calls, or launches, before each reading."""
    seconds: float
    heap: array[int] | None
    mapped: array[int] | None
    device: array[int] | None
    faults: array[int] | None
    """Pages that were touched for the first time, from one reading to the next."""

    @property
    def calls(self) -> int:
        """How many were made between the first reading and the last."""
        return int(self.made[-1])

    def growth(self, series: str) -> int:
        """The last reading less the first."""
        readings = getattr(self, series)
        return 0 if readings is None else int(readings[-1] - readings[0])


@dataclass(frozen=True, slots=True)
class Searches:
    """A search; where something grew in it also a second one, and one as long that does nothing."""

    first: Search
    again: Search | None = None
    idle: Search | None = None

    @property
    def last(self) -> Search:
        """The search whose figures are told."""
        return self.again or self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Readings of one variant on one workload; bytes."""

    inputs: int
    outputs: int
    workspace: int
    own_memory: bool
    """The device has a memory of its own."""
    host_peaks: tuple[int, ...]
    """Empty where the system does not tell, and where a simulator keeps the device's memory on the host."""
    host_floor: int
    device_peaks: tuple[int, ...]
    """Beyond inputs and outputs; empty where nobody counts."""
    device_floor: int
    """What the device takes for the declared workspace and for the index that a launch reports, less the workspace."""
    persistent: int | None
    allocated: int
    calls: Searches
    launches: Searches
    notes: tuple[str, ...]
    """What could not be read, and why."""


def memory_use(
    device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes, *, threads: int, bits_per_weight: float | None = None
) -> MemoryUse:
    """Observe and judge in this process. `inputs` are encoded for the variant's format. What device or variant raise is passed on."""
    return judged(observe(device, op, variant, inputs, axes, threads=threads), bits_per_weight=bits_per_weight)


def bits_per_weight(op: Op, key: KernelKey, axes: Axes, inputs: Arrays) -> float | None:
    """Bits that a packed weight takes, scales included: of the inputs where they come packed, else of all outputs.

    `inputs` are encoded for the key's format. None for an op that takes no weights.
    """
    if op.weights is None:
        return None
    ternary = [tensor for tensor in op.inputs if tensor.values is Values.TERNARY]
    packed = [inputs[each.name] for each in ternary if inputs[each.name].shape != tuple(axes[axis] for axis in each.axes)]
    made = op.outputs_like(axes, key).values()
    nbytes = sum(each.nbytes for each in packed) or sum(_nbytes(shape, named_dtype(dtype)) for shape, dtype in made)
    return 8 * nbytes / op.weights(axes)


def observe(device: Device, op: Op, variant: Variant, inputs: Arrays, axes: Axes, *, threads: int) -> Observed:
    """Take the readings, on arrays of its own. `inputs` are encoded for the variant's format. What device or variant raise is passed on."""
    memory = memory_of(device)
    own_memory = memory is not HOST
    there = {name: value for name, value in inputs.items() if is_array(value)}
    like = {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in op.outputs_like(axes, variant.key).items()}
    alignment = max(ALIGNMENT, variant.alignment)
    # All of it is written now, so that no launch is charged for the pages of its arguments.
    takes = {name: _placed(memory, np.ascontiguousarray(value), alignment) for name, value in there.items()}
    gives = {name: _placed(memory, np.zeros(shape, dtype), alignment) for name, (shape, dtype) in like.items()}

    def bound() -> Launch:
        return variant.bind({**inputs, **takes}, gives, axes, threads)

    def once() -> None:
        bound().run()

    with _frozen(), memory.watch() as watch:
        meter = _Meter(watch)
        persistent = meter.kept(once, own_memory=own_memory)
        workspace = variant.workspace(axes)
        notes = []
        host_peaks: tuple[int, ...] = ()
        host_floor = 0
        if not (own_memory and device.simulated()):
            try:
                host_floor = floor()
                # What looks like too much is looked at some more times: pages are counted by each core for itself first.
                while len(host_peaks) < _PEAKS or (min(host_peaks) > workspace + host_floor and len(host_peaks) < _MOST_PEAKS):
                    host_peaks += (peak(once),)
                    host_floor = max(host_floor, floor())
            except UnreadableError as error:
                notes.append(f"the peak of the host's memory is not known: {error}")
        device_peaks = tuple(told for _ in range(_PEAKS if own_memory else 0) if (told := _device_peak(memory, once)) is not None)
        device_floor = max(0, (_device_peak(memory, lambda: _scratch(memory, workspace)) or 0) - workspace) if own_memory else 0
        calls, most = _called(meter, bound())
        if calls.first.heap is None:
            notes.append("leaks of the host's memory are not known: this system does not tell what a process holds")
        quick = calls.first.seconds < BUDGET_S + STEPS * _PILOT_S
        launches = meter.searches(lambda times: (once if quick else bound)(), 1)
    return Observed(
        inputs=sum(value.nbytes for value in there.values()),
        outputs=sum(_nbytes(*each) for each in like.values()),
        workspace=workspace,
        own_memory=own_memory,
        host_peaks=host_peaks,
        host_floor=host_floor,
        device_peaks=device_peaks,
        device_floor=device_floor,
        persistent=persistent,
        allocated=most,
        calls=calls,
        launches=launches,
        notes=tuple(notes),
    )


def judged(seen: Observed, *, bits_per_weight: float | None = None) -> MemoryUse:
    """The verdict on the readings: FAIL for a leak, for memory that was not declared, and for an overhead of OVERHEAD or more."""
    where = "device" if seen.own_memory else "host"
    peaks, least = (seen.device_peaks, seen.device_floor) if seen.own_memory else (seen.host_peaks, seen.host_floor)
    taken = min(peaks, default=None)
    reasons = [*_leaks(seen.calls, "a call", "calls"), *_leaks(seen.launches, "of each launch that was dropped", "launches")]
    overhead = max(0, taken - least) / seen.inputs if taken is not None and seen.inputs else None
    if taken is not None and taken > seen.workspace + least:
        noise = f"what {'the device rounds up to' if seen.own_memory else 'this system may miscount'} is {least}"
        reasons.append(f"takes {taken} bytes of the {where}'s memory beyond inputs and outputs and declares {seen.workspace}; {noise}")
    if overhead is not None and overhead >= OVERHEAD and seen.inputs > least:  # what is not told from noise is no part of small inputs
        reasons.append(
            f"takes {overhead:.1f} times its {seen.inputs} bytes of inputs beyond inputs and outputs; under {OVERHEAD:g} is wanted"
        )
    told = seen.calls.last
    slopes = [slope for series in ("heap", "mapped") if (slope := _slope(told, series)) is not None]
    return MemoryUse(
        status=Status.FAIL if reasons else Status.PASS,
        reason="; ".join([*reasons, *seen.notes]),
        inputs=seen.inputs,
        outputs=seen.outputs,
        workspace=seen.workspace,
        host_peak=min(seen.host_peaks, default=None),
        device_peak=min(seen.device_peaks, default=None),
        persistent=seen.persistent,
        allocated=seen.allocated,
        page_faults=_faults(told),
        calls=told.calls,
        leak=max(slopes, key=lambda slope: slope.low, default=None),
        device_leak=_slope(told, "device"),
        bits_per_weight=bits_per_weight,
        overhead=overhead,
        floor=least,
    )


@contextmanager
def _frozen() -> Iterator[None]:
    """Objects that are there already are passed over meanwhile by the search for cycles, which takes no time then."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Meter:
    """Takes the readings. `watch` was entered."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch

    def kept(self, work: Callable[[], object], *, own_memory: bool) -> int | None:
        """What is held after `work` and was not before: of the device's memory, or of the heap."""
        settle()
        before = self._held(own_memory)
        work()
        settle()
        after = self._held(own_memory)
        return None if before is None or after is None else max(0, after - before)

    def _held(self, own_memory: bool) -> int | None:
        if own_memory:
            told: int | None = self._watch.held
            return told
        now = held()
        return None if now is None else now.heap

    def searches(self, work: Callable[[int], object], each: int) -> Searches:
        """Search for what each `work` leaves behind, told to make so many calls."""
        first = self._search(work, each)
        if all(first.growth(series) <= 0 for series in _SERIES):
            return Searches(first)
        return Searches(first, self._search(work, each), self._search(lambda times: sleep(first.seconds / STEPS), each))

    def _search(self, work: Callable[[int], object], each: int) -> Search:
        # Made beforehand: numbers that are kept one by one would be growth.
        made, heap, mapped, device, touched = (array("q", bytes(8 * (STEPS + 1))) for _ in range(5))
        begun = perf_counter()
        host = own = True
        pages = faults() is not None
        # The first round is taken twice: what reading takes itself is there from then on.
        for step in (0, *range(STEPS + 1)):
            # Calls may take longer than they did at first, where others are busy.
            times = each if perf_counter() - begun < BUDGET_S else 1
            made[step] = made[step - 1] + times if step else 0
            before = faults()
            work(times)
            touched[step] = (faults() or 0) - (before or 0)
            settle()
            now, there = held(), self._watch.held
            host, own = now is not None, there is not None
            if now is not None:
                heap[step], mapped[step] = now
            if there is not None:
                device[step] = there
        return Search(
            made,
            perf_counter() - begun,
            heap if host else None,
            mapped if host else None,
            device if own else None,
            touched[1:] if pages else None,
        )


def _leaks(found: Searches, unit: str, things: str) -> list[str]:
    """What grows for certain, in words."""
    if found.again is None or found.idle is None:
        return []
    words = {
        "heap": "leaks {} bytes",
        "mapped": "maps {} bytes and never gives them back,",
        "device": "leaks {} bytes of the device's memory",
    }
    told = []
    for series, word in words.items():
        slopes = [_slope(search, series) for search in (found.first, found.again)]
        grown = min(found.first.growth(series), found.again.growth(series))
        slope = slopes[1]
        if slope is not None and all(each is not None and each.low > 0 for each in slopes) and grown > found.idle.growth(series):
            interval = f"(95 %: {slope.low:.1f} to {slope.high:.1f})"
            told.append(f"{word.format(f'{slope.median:.1f}')} {unit} {interval} over {found.again.calls} {things}")
    return told


def _slope(search: Search, series: str) -> Slope | None:
    """Growth for each call, or launch, by Theil and Sen."""
    readings = getattr(search, series)
    if readings is None:
        return None
    if min(readings) == max(readings):
        return Slope(median=0.0, low=0.0, high=0.0)
    from scipy.stats import theilslopes

    found = theilslopes(np.asarray(readings), np.asarray(search.made), _LEVEL)
    return Slope(median=float(found[0]), low=float(found[2]), high=float(found[3]))


def _faults(search: Search) -> float | None:
    """Pages that a call touches for the first time."""
    if search.faults is None:
        return None
    return median(pages / times for pages, times in zip(search.faults, np.diff(search.made), strict=True))


def _called(meter: _Meter, launch: Launch) -> tuple[Searches, int]:
    """The search over the calls of one launch, and what a call allocates."""
    each = _batch(launch.run)
    return meter.searches(lambda times: _repeat(launch.run, times), each), allocated(launch.run)


def _batch(run: Callable[[], None]) -> int:
    """How many calls to make between two readings."""
    calls, begun = 0, perf_counter()
    while (seconds := perf_counter() - begun) < _PILOT_S:
        run()
        calls += 1
    return max(1, min(MOST_CALLS, int(BUDGET_S * calls / seconds)) // STEPS)


def _repeat(run: Callable[[], None], times: int) -> None:
    for _ in range(times):
        run()


def _device_peak(memory: Memory, work: Callable[[], object]) -> int | None:
    with memory.watch() as seen:
        work()
    told: int | None = seen.peak
    return told


def _scratch(memory: Memory, workspace: int) -> tuple[Any, ...]:
    """A workspace as a launch would make it, and memory for the index that it reports (see Launch.bad)."""
    return tuple(memory.allocate(nbytes) for nbytes in (workspace, _INDEX) if nbytes)


def _placed(memory: Memory, values: npt.NDArray[Any], alignment: int) -> Any:
    """A copy of the array where the device's kernels find it."""
    if memory is not HOST:
        made = memory.view(memory.allocate(max(1, values.nbytes)), 0, values.shape, values.dtype)
        memory.write(made, values)
        return made
    raw = np.empty(values.nbytes + alignment, np.uint8)
    array: npt.NDArray[Any] = np.ndarray(values.shape, values.dtype, raw, -raw.ctypes.data % alignment)
    array[...] = values
    return array


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return prod(shape) * dtype.itemsize
