"""The memory dimension: memory that calls take beyond their arguments, keep, and leak.

`observe` has the candidate's process bind, run and drop, and reads its account from outside (worker.peak). `judged`
turns the readings into a verdict. `confirmed_use` does both in a fresh process, and a fault must show again in another.

First calls: memory that the process holds after FIRST launches were bound, run and dropped, and did not hold before, is
compared with the declared workspace. It includes heap, written static data, shared memory, page tables and files
without a name. A kernel of the device that does almost nothing runs first with as many threads, so that their stacks
exist. A kernel may go further down the stacks of further threads, by the least stack that the system gives every
thread. Modules imported meanwhile are code. If the first calls seem to keep too much, the process that confirms it
imports those modules beforehand.

Peaks: as many launches are bound, run and dropped in sequence, a few more times. The least of the peaks counts, because
other activity in the process can only add. The floor is the possible error of the system's page count, or more if the
same procedure shows more for a call that does nothing. Only memory above the declared workspace and the floor counts
against a kernel, and an overhead only if the inputs are larger than the floor. On a device with its own memory, that
memory is judged, and the host's is reported.

Leaks: readings of the heap (reported by the process) and of resident, mapped and kernel memory (from outside), between
up to MOST_CALLS calls of one launch, and between launches that are bound, run and dropped. Also of bytes written to
files that stay: on disks as the system counts for the process, in memory (tmpfs) the total of all files. If Theil and
Sen's slope is above zero by its 95 % interval, the search is repeated four times as long, and again, and a third time
unless the growth is steady. A leak continues and grows more in the longer search; a cache that fills, or a heap that
fluctuates, does not. Growth must be a page or more, the least that the system gives to a process, and more than calls
of nothing show.

Memory that grows by a page a call from each reading to the next is steady growth (memory that a heap keeps of freed
blocks also comes in steps, of megabytes). The longer searches then get up to LONGEST_S each, since slow launches would
otherwise be as few as in the first, and steady growth in all of them is a leak. One search suffices for steady growth
that would exceed the memory of the system before the longer searches end, for memory of a device, and for descriptors,
one for each reading, which are counted and not measured. A false alarm must pass all searches of two processes, six or
eight, with 2.5 % each: far less than the 1 % that the alarms of an invocation share among some hundred tests.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.machine.memory import available
from tritmark.harness.measure.statistics import theil_sen
from tritmark.harness.record import MemoryUse, Slope, Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Values, Variant
from tritmark.harness.validate import memory_tasks as tasks
from tritmark.harness.validate.guard_names import Guard, in_order
from tritmark.harness.validate.memory_tasks import Kind, MemoryBaseline
from tritmark.harness.worker import Workers
from tritmark.harness.worker.peak import KNOWN, UnreadableError, account, held_in_memory, miscount, peak

MOST_CALLS = 2_500
STEPS = 10
"""Readings in a search beside the first, and the least number of calls."""
BUDGET_S = 0.06
"""Further time for the calls of the first search."""
LONGER = 4
"""Length of a further search relative to the last one."""
LONGEST_S = 10.0
"""Time limit for the calls of a further search for steady growth."""
LEAST_STACK = os.sysconf("SC_THREAD_STACK_MIN")
"""Bytes of stack that every thread has at least."""
SEARCHES = 3
FIRST = 8
"""Launches behind one reading of a peak, or of the memory that first calls keep: a kernel that takes memory in its
second call, or in every few calls, is detected too."""
OVERHEAD = 2.0
"""Beyond inputs and outputs, a call must take less than this times its inputs (specification, 2.5), if these are larger
than the floor."""

_OTHERS = 2
"""Files in memory are those of all processes: they must grow this many times as much as beside a call of nothing."""
_PEAKS = 3
_MOST_PEAKS = 12
_SERIES = ("heap", "resident", "mapped", "kernel", "device", "descriptors", "files")
_WORDS = {
    "heap": "leaks {} bytes",
    "resident": "leaks {} bytes",
    "mapped": "maps {} bytes and never unmaps them,",
    "kernel": "leaks {} bytes of the system's memory",
    "device": "leaks {} bytes of the device's memory",
    "descriptors": "leaks {} descriptors",
    "files": "writes {} bytes to files that stay,",
}

Ask = Callable[..., Any]
"""`ask(task, *args)` returns the task's result from a candidate's process."""


@dataclass(frozen=True, slots=True)
class Search:
    """Readings between calls or launches: bytes, and numbers of descriptors."""

    made: array[int]
    """Calls or launches before each reading."""
    seconds: float
    series: Mapping[str, array[int]]
    """By name. Series that the system does not report are missing."""
    faults: array[int] | None
    """Pages touched for the first time between two readings."""

    @property
    def calls(self) -> int:
        """Calls or launches between the first reading and the last."""
        return int(self.made[-1])

    def growth(self, name: str) -> int:
        """The last reading minus the first."""
        readings = self.series.get(name)
        return 0 if readings is None else int(readings[-1] - readings[0])


@dataclass(frozen=True, slots=True)
class Searches:
    """One search; if something grew in it, also longer ones, and one as long as the last with calls of nothing."""

    each: tuple[Search, ...]
    idle: Search | None = None

    @property
    def last(self) -> Search:
        """The search whose figures are reported."""
        return self.each[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Readings of one variant on one workload; bytes."""

    inputs: int
    outputs: int
    workspace: int
    own_memory: bool
    """Whether the device has its own memory."""
    host_peaks: tuple[int, ...]
    """Empty if the system does not report it, or a simulator keeps the device's memory on the host."""
    host_floor: int
    device_peaks: tuple[int, ...]
    """Beyond inputs and outputs; empty if the device does not count it."""
    device_floor: int
    """Memory that the device takes for the declared workspace and for the index that a launch reports, minus the
    workspace."""
    persistent: int | None
    persistent_floor: int
    imported: tuple[str, ...]
    """Modules imported by the first calls."""
    allocated: int
    calls: Searches
    launches: Searches
    notes: tuple[str, ...]
    """Missing readings with reasons. A missing reading is no PASS."""


def confirmed_use(
    fresh: Callable[[bool], tuple[Ask, int]],
    inputs: Arrays,
    axes: Axes,
    *,
    threads: int,
    bits_per_weight: float | None = None,
    packs: bool = False,
) -> MemoryUse:
    """Observe and judge in a fresh process, and repeat faults in another one: only faults that both show count against
    the kernel. If binding `packs` inputs, the memory for it is reported, and only leaks count.

    `fresh` starts a process, given whether it is the second, and returns how to ask it and its process id. Exceptions
    of its tasks are passed on.
    """
    ask, pid = fresh(False)
    first = observe(ask, pid, inputs, axes, threads=threads)
    alarms = _counted(faults(first), packs)
    if not alarms:
        return judged(first, alarms, bits_per_weight=bits_per_weight)
    ask, pid = fresh(True)
    seen = observe(ask, pid, inputs, axes, threads=threads, modules=first.imported)
    both = {kind: reason for kind, reason in _counted(faults(seen), packs).items() if kind in alarms}
    return judged(seen, both, bits_per_weight=bits_per_weight).model_copy(
        update={"alarms": len(alarms), "confirmed": len(both)}
    )


def _counted(found: dict[str, str], packs: bool) -> dict[str, str]:
    return {kind: reason for kind, reason in found.items() if not packs or _GUARDS[kind] is Guard.LEAK}


def watched(workers: Workers, variant: Variant, again: bool) -> tuple[Ask, int]:
    """A process of the variant, and how to ask it; see confirmed_use. This process, if workers are no processes.

    On a device with its own memory, whose driver starts slowly, only the repetition gets a fresh process: host memory
    that a first call keeps is not judged there.
    """
    if again or workers.installed.registry.devices[variant.key.device].memory is None:
        workers.renew(variant)
    worker = workers.of(variant)

    def ask(task: Callable[..., Any], *args: Any) -> Any:
        return worker.call("measuring its memory", task, *args)

    ask(tasks.release)
    process = getattr(worker, "process", None)
    return ask, os.getpid() if process is None else process.pid


def bits_per_weight(op: Op, key: KernelKey, axes: Axes, inputs: Arrays) -> float | None:
    """Bits of a packed weight, scales included: of the inputs if they are packed, else of all outputs.

    `inputs` are encoded for the key's format. None for an op without weights.
    """
    if op.weights is None:
        return None
    ternary = [tensor for tensor in op.inputs if tensor.values is Values.TERNARY]
    packed = [
        inputs[each.name] for each in ternary if inputs[each.name].shape != tuple(axes[axis] for axis in each.axes)
    ]
    made = op.outputs_like(axes, key).values()
    nbytes = sum(each.nbytes for each in packed) or sum(
        prod(shape) * named_dtype(dtype).itemsize for shape, dtype in made
    )
    return 8 * nbytes / op.weights(axes)


def observe(ask: Ask, pid: int, inputs: Arrays, axes: Axes, *, threads: int, modules: tuple[str, ...] = ()) -> Observed:
    """Take the readings of the process `pid` through `ask`. `inputs` are encoded for the variant's format. `modules`
    are imported beforehand. Exceptions of tasks are passed on."""
    prepared: MemoryBaseline = ask(tasks.prepare, inputs, dict(axes), threads, modules)
    own_memory, notes = prepared.own_memory, []
    try:
        persistent, persistent_floor, imported = _kept(ask, pid, prepared)
    except UnreadableError as error:
        persistent, persistent_floor, imported = None, 0, ()
        notes.append(f"the memory that first calls keep is not known: {error}")
    host_peaks: tuple[int, ...] = ()
    host_floor = miscount(prepared.small_pages)
    if not (own_memory and prepared.simulated):
        try:
            off, tries = _peak(ask, pid, "touch") - KNOWN, 1
            while abs(off) > KNOWN // 2 and tries < _PEAKS:
                off, tries = _peak(ask, pid, "touch") - KNOWN, tries + 1
            if abs(off) > KNOWN // 2:
                raise UnreadableError(f"it does not show {KNOWN} bytes that were written")
            host_floor = max(host_floor, _peak(ask, pid, "nothing"), abs(off))
            # A reading that seems too high is repeated: each core first counts pages by itself.
            while len(host_peaks) < _PEAKS or (
                min(host_peaks) > prepared.workspace + host_floor and len(host_peaks) < _MOST_PEAKS
            ):
                host_peaks += (_peak(ask, pid, "launch"),)
        except UnreadableError as error:
            notes.append(f"the peak of the host's memory is not known: {error}")
    device_peaks = tuple(
        reported
        for _ in range(_PEAKS if own_memory else 0)
        if (reported := ask(tasks.device_peak, "launch")) is not None
    )
    if own_memory and not device_peaks:
        notes.append("the peak of the device's memory is not known: the device does not count it")
    device_floor = max(0, (ask(tasks.device_peak, "workspace") or 0) - prepared.workspace) if own_memory else 0
    made, seconds = ask(tasks.pilot, "call")
    meter = _Meter(ask, None if own_memory else pid)
    calls = meter.searches("call", max(1, min(MOST_CALLS, int(BUDGET_S * made / seconds)) // STEPS))
    launches = meter.searches("launch", 1)
    unread = [name for name in _series(own_memory) if any(name not in each.last.series for each in (calls, launches))]
    if unread:
        why = f": {meter.unread}" if meter.unread else ": this system does not report them"
        notes.append(f"leaks of {', '.join(unread)} are not known{why}")
    found = Observed(
        inputs=prepared.inputs,
        outputs=prepared.outputs,
        workspace=prepared.workspace,
        own_memory=own_memory,
        host_peaks=host_peaks,
        host_floor=host_floor,
        device_peaks=device_peaks,
        device_floor=device_floor,
        persistent=persistent,
        persistent_floor=max(persistent_floor, host_floor)
        + (threads - 1) * LEAST_STACK
        + _page_tables(prepared.workspace),
        imported=imported,
        allocated=ask(tasks.traced),
        calls=calls,
        launches=launches,
        notes=tuple(notes),
    )
    ask(tasks.release)
    return found


def _page_tables(nbytes: int) -> int:
    """The most bytes of page tables that a declared workspace brings: a page for 512 pages, and at both ends. The first
    growth of a heap or a stack brings them, too."""
    return mmap.PAGESIZE * (2 + nbytes // (512 * mmap.PAGESIZE))


def _series(own_memory: bool) -> tuple[str, ...]:
    """Series that a search for leaks must read. On a device with its own memory, the host's series belong to the
    driver."""
    return ("device",) if own_memory else tuple(name for name in _SERIES if name != "device")


def _peak(ask: Ask, pid: int, kind: Kind) -> int:
    ask(tasks.settled)
    return peak(pid, lambda: ask(tasks.several, kind, FIRST))


def _kept(ask: Ask, pid: int, prepared: MemoryBaseline) -> tuple[int | None, int, tuple[str, ...]]:
    """Memory that the first calls keep, the part of it that calls of nothing and threads show, and the modules imported
    by the first calls; None if the device does not report it. Raises UnreadableError."""

    def after(task: Callable[..., Any], *args: Any) -> tuple[int | None, frozenset[str]]:
        ask(task, *args)
        device, names = ask(tasks.settled)
        if prepared.own_memory:
            return device, names
        reported = account(pid, exact=True)
        return reported.resident + reported.kernel + held_in_memory(), names

    if not prepared.own_memory:
        after(tasks.once, "nothing")
    begun, _ = after(tasks.once, "nothing")
    with_threads, _ = begun, None
    if not prepared.own_memory:
        with_threads, _ = after(tasks.probe)
    before, known = after(tasks.once, "nothing")
    now, names = after(tasks.several, "launch", FIRST)
    if begun is None or with_threads is None or before is None or now is None:
        return None, 0, ()
    return max(0, now - before), max(with_threads - begun, abs(before - with_threads)), tuple(sorted(names - known))


_GUARDS = {
    "leak of calls": Guard.LEAK,
    "leak of launches": Guard.LEAK,
    "peak": Guard.WORKSPACE,
    "kept": Guard.WORKSPACE,
    "overhead": Guard.WORKSPACE,
}
"""The guard of each kind of fault."""


def faults(seen: Observed) -> dict[str, str]:
    """Faults of the kernel as text, by kind."""
    where = "device" if seen.own_memory else "host"
    reported = {
        "leak of calls": "; ".join(_leaks(seen.calls, "a call", "calls").values()),
        "leak of launches": "; ".join(_leaks(seen.launches, "of each dropped launch", "launches").values()),
    }
    peaks, least = (seen.device_peaks, seen.device_floor) if seen.own_memory else (seen.host_peaks, seen.host_floor)
    taken, overhead = min(peaks, default=None), _overhead(seen)
    if taken is not None and taken > seen.workspace + least:
        noise = f"{'rounding of the device' if seen.own_memory else 'the error of the count'} is up to {least}"
        reported["peak"] = (
            f"takes {taken} bytes of the {where}'s memory beyond inputs and outputs and declares "
            f"{seen.workspace}; {noise}. Declare the workspace or use less"
        )
    # The driver may keep the device's memory, and host memory for it.
    if not seen.own_memory and seen.persistent is not None and seen.persistent > seen.workspace + seen.persistent_floor:
        reported["kept"] = (
            f"keeps {seen.persistent} bytes of the host's memory beyond inputs and outputs and declares "
            f"{seen.workspace}, from its first calls on; a kernel that does nothing may show {seen.persistent_floor}. "
            "Declare the workspace or free it"
        )
    # memory within the floor is no part of small inputs
    if overhead is not None and overhead >= OVERHEAD and seen.inputs > least:
        reported["overhead"] = (
            f"takes {overhead:.1f} times its {seen.inputs} bytes of inputs beyond inputs and outputs; the limit is "
            f"{OVERHEAD:g} times"
        )
    return {kind: reason for kind, reason in reported.items() if reason}


def judged(
    seen: Observed, held_against: Mapping[str, str] | None = None, *, bits_per_weight: float | None = None
) -> MemoryUse:
    """The verdict on the readings. FAIL for a leak, for undeclared memory, and for an overhead of OVERHEAD or more. NOT
    RUN if there is no fault and a reading is missing.

    `held_against`: the `faults` that count; None: all.
    """
    found = faults(seen) if held_against is None else held_against
    reported = seen.calls.last
    slopes = {
        name: slope
        for name in ("heap", "resident", "mapped", "kernel")
        if (slope := _slope(reported, name)) is not None
    }
    leaking = {name: slopes[name] for name in _leaks(seen.calls, "a call", "calls") if name in slopes} or slopes
    series = sum(len(each.last.series) for each in (seen.calls, seen.launches))
    return MemoryUse(
        status=Status.FAIL if found else Status.NOT_RUN if seen.notes else Status.PASS,
        reason="; ".join([*found.values(), *seen.notes]),
        caught_by=in_order(_GUARDS[kind] for kind in found),
        limits=seen.notes,
        inputs=seen.inputs,
        outputs=seen.outputs,
        workspace=seen.workspace,
        host_peak=min(seen.host_peaks, default=None),
        device_peak=min(seen.device_peaks, default=None),
        persistent=seen.persistent,
        persistent_floor=seen.persistent_floor,
        allocated=seen.allocated,
        page_faults=_faults(reported),
        calls=reported.calls,
        leak=max(leaking.values(), key=lambda slope: slope.low, default=None),
        device_leak=_slope(reported, "device"),
        bits_per_weight=bits_per_weight,
        overhead=_overhead(seen),
        floor=seen.device_floor if seen.own_memory else seen.host_floor,
        tests=series
        + (bool(seen.host_peaks or seen.device_peaks))
        + (seen.persistent is not None and not seen.own_memory),
        alarms=len(found),
        confirmed=len(found),
    )


def _overhead(seen: Observed) -> float | None:
    peaks, least = (seen.device_peaks, seen.device_floor) if seen.own_memory else (seen.host_peaks, seen.host_floor)
    return max(0, min(peaks) - least) / seen.inputs if peaks and seen.inputs else None


class _Meter:
    """Takes the readings of a process. `pid` None: only those that the process reports itself."""

    def __init__(self, ask: Ask, pid: int | None) -> None:
        self._ask, self._pid = ask, pid
        self.unread = ""
        """Why the process could not be read from outside."""

    def searches(self, kind: Kind, each: int) -> Searches:
        """Search for growth, at first with `each` calls or launches between two readings."""
        found = [self._search(kind, each, BUDGET_S)]
        longer = 1
        while len(found) < SEARCHES and _grows(found[-1]) and not any(_at_once(found[0], name) for name in _SERIES):
            longer *= LONGER
            found.append(self._search(kind, longer * each, _budget_s(found[0], longer)))
        # Growth in bursts gets one more: a library that keeps little memory of some launches passed three searches.
        steady = any(all(_steady(each, name) for each in found) for name in _SERIES)
        if len(found) == SEARCHES and not steady and _grows(found[-1]):
            longer *= LONGER
            found.append(self._search(kind, longer * each, _budget_s(found[0], longer)))
        idle = (
            self._search("nothing", longer * each, longer * BUDGET_S, found[-1].seconds) if _grows(found[-1]) else None
        )
        return Searches(tuple(found), idle)

    def _outside(self) -> dict[str, int]:
        if self._pid is None:
            return {}
        try:
            return account(self._pid, exact=False)._asdict()
        except UnreadableError as error:
            self.unread = str(error)
            return {}

    def _search(self, kind: Kind, each: int, budget_s: float, seconds: float = 0.0) -> Search:
        """One search of at least `seconds`."""
        # Allocated beforehand: storing numbers one by one would be growth.
        made, touched = array("q", bytes(8 * (STEPS + 1))), array("q", bytes(8 * (STEPS + 1)))
        series = {name: array("q", bytes(8 * (STEPS + 1))) for name in _SERIES}
        pages, begun = True, perf_counter()
        # The first round runs twice: the memory that reading itself takes exists from then on.
        for step in (0, *range(STEPS + 1)):
            # Calls may become slower if other processes are busy.
            times = each if perf_counter() - begun < budget_s else max(1, each // LONGER**SEARCHES)
            made[step] = made[step - 1] + times if step else 0
            reported = self._ask(tasks.batch, kind, times, seconds / STEPS)
            there = self._outside()
            touched[step], pages = reported.faults or 0, reported.faults is not None
            seen = {**reported._asdict(), **there}
            for name in _SERIES:
                value = seen.get(name)
                if value is None:
                    series.pop(name, None)
                elif name in series:
                    series[name][step] = value
        return Search(made, perf_counter() - begun, series, touched[1:] if pages else None)


def _grows(search: Search) -> bool:
    return any((slope := _slope(search, name)) is not None and slope.low > 0 for name in _SERIES)


def _budget_s(first: Search, longer: int) -> float:
    """Time limit for the calls of a search `longer` times as long as the first one. Twice the predicted time, because
    other processes may become busy."""
    steady = any(_steady(first, name) for name in _SERIES)
    return max(longer * BUDGET_S, min(2 * longer * first.seconds, LONGEST_S) if steady else 0.0)


def _steady(search: Search, name: str) -> bool:
    """Whether a series grows from each reading to the next, memory by a page a call."""
    slope, readings = _slope(search, name), search.series.get(name)
    if slope is None or readings is None or slope.low <= 0:
        return False
    if name == "descriptors":
        return search.growth(name) >= STEPS
    return bool(np.all(np.diff(readings) >= mmap.PAGESIZE * np.diff(search.made)))


def _at_once(search: Search, name: str) -> bool:
    """Whether one search is conclusive."""
    further = sum(LONGER**power for power in range(1, SEARCHES))
    return _steady(search, name) and (name in {"descriptors", "device"} or search.growth(name) * further > available())


def _leaks(found: Searches, unit: str, things: str) -> dict[str, str]:
    """Certain growth as text, by series."""
    reported: dict[str, str] = {}
    for name, words in _WORDS.items():
        slope = _slope(found.last, name)
        if (
            slope is not None
            and found.idle is not None
            and found.last.growth(name) > (_OTHERS if name == "files" else 1) * found.idle.growth(name)
            and _goes_on(found, name)
        ):
            # Resident memory is also mapped, and the heap is both.
            if reported and name in {"resident", "mapped"}:
                continue
            interval = f"(95 %: {slope.low:.1f} to {slope.high:.1f})"
            reported[name] = f"{words.format(f'{slope.median:.1f}')} {unit} {interval} over {found.last.calls} {things}"
    return reported


def _goes_on(found: Searches, name: str) -> bool:
    """Whether it grows steadily in every search; or in every search, and more in the last than in the one before: by
    LONGER ** 0.5, which lies between a cache that fills once and a leak."""
    if len(found.each) < SEARCHES:
        return _at_once(found.each[0], name)
    if name == "descriptors":
        return False
    if all(_steady(each, name) for each in found.each):
        return True
    slopes = [_slope(each, name) for each in found.each]
    before, last = (each.growth(name) for each in found.each[-2:])
    return all(slope is not None and slope.low > 0 for slope in slopes) and last >= max(
        mmap.PAGESIZE, before * LONGER**0.5
    )


def _slope(search: Search, name: str) -> Slope | None:
    """Growth a call or launch, by Theil and Sen."""
    readings = search.series.get(name)
    if readings is None:
        return None
    if min(readings) == max(readings):
        return Slope(median=0.0, low=0.0, high=0.0)
    middle, low, high = theil_sen(readings, search.made)
    return Slope(median=middle, low=low, high=high)


def _faults(search: Search) -> float | None:
    """Pages that a call touches for the first time."""
    if search.faults is None:
        return None
    return median(pages / times for pages, times in zip(search.faults, np.diff(search.made), strict=True))
