"""Judge a measurement that another process took. This process holds the expected values.

Times, counts and audits come from the candidate's process, which could forge them. The expected values, the clock and
the kernel's account of CPU time are here.

An incorrect output is always a fault. A check that rests on time can fail for an honest kernel: when the machine was
fast during samples and slow in the lap, say. Such a FAIL stands only if the same guard fails in a fresh process. If a
guard errs in one of a hundred measurements, more than was observed on busy machines, it errs twice in one of ten
thousand. The hundred tests of an invocation then share one false alarm in a hundred invocations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from time import clock_gettime_ns, perf_counter_ns, sleep
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.machine.cpu import affinity
from tritmark.harness.measure.system_load import SystemLoad, crowded
from tritmark.harness.record import Divergence, Performance, Status
from tritmark.harness.validate.audit import PIECE, Audited, AuditedPiece
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.compare import Expected, compare
from tritmark.harness.validate.guard_names import Complaint, Guard, in_order
from tritmark.harness.validate.pieces import NOTHING, Exchangeable, Piece

Lap = Callable[[str, int, int], None]
"""`lap("cold" or "hot", rounds, calls)` makes `rounds` times `calls` consecutive calls of the measured kernel."""

STATISTICAL = frozenset({Guard.CLOCK, Guard.FLOOR, Guard.THREADS, Guard.LATE})
"""Guards that rest on time: a FAIL needs the same guard in a fresh process."""

LIE = 2.0
"""A lap that takes this many times the claim refutes it. Requests to the other process, and work that the clock leaves
out of each round (launches are handed to a device before its clock begins), are at most half of it."""

_ROUND_NS = 2_000_000
_LAP_NS = 10_000_000
_LAPS = 3
_DOUBT_NS = 1_000_000_000
"""Duration of further laps for a claim that seems refuted: other processes may have been busy, and their load is not
known over a shorter time."""

_STEP = 8
_SHARE = 0.15
"""Share of a lap's CPU time. A thread that does less was not started to share the work."""

UNCOUNTED = (
    "the number of threads at work was not checked, and its times may include waits for other processes: "
    "/proc/PID/task/TID/schedstat cannot be read"
)
"""Limit of a performance verdict on a system without per-thread accounts."""

ONCE_REFUTED = "its times were not proven: one process refuted them, and a second did not"
"""What a performance verdict reports if only the first of two measurements was refuted."""

_LEAST_NS = 2_000_000
_TICK_NS = 4_000_000
"""Interval at which the kernel updates the account of a running thread, at the usual 250 Hz. Until the update, its work
looks like the work of a thread that has ended. A tick of 10 ms is too small a share of three laps of _LAP_NS to
count."""

_ENDING_NS, _LOOKS = 500_000_000, 10
"""Time from the end of a thread's work to its exit on busy cores, and the number of checks meanwhile. Each check takes
time of this process, which may be the one under test."""

_CERTAIN = 8.0
"""Ratio of CPU time to the claim that other processes cannot cause: threads that wait for one without a core spin."""
_LEAST_SHARE = 0.4
"""Least share of CPU time in the runnable time of the threads for a proof. Beside one other thread a core the share is
1/2, beside two 1/3. With less, threads that share their work seldom run at the same time, and spin while they wait."""
_CERTAIN_ALONE = 2 * LIE
"""The same ratio for a single thread, which waits for no other thread: a process that shares its core takes half of
it."""
_HELD_UP = 0.05


def confirm(
    performance: Performance,
    left: Sequence[Complaint],
    lap: Lap,
    *,
    threads: int,
    pid: int | None,
    held_up: bool = False,
) -> Performance:
    """The performance with the faults found here. FAIL, or AMBIGUOUS if a guard questions it and the machine was too
    busy to decide. `left`: faults in the outputs of its calls.

    `held_up`: other processes took so much of the cores during the measurement that times of different moments cannot
    be compared. `lap` calls the measured kernel where it was measured: in the process `pid`, which is None for a device
    that works by itself.
    """
    faults = list(left)
    doubts: list[str] = []
    tests = performance.tests
    # On a device, launches on many buffers are submitted one by one, which takes several times as long as they run:
    # only hot laps are conclusive.
    laps = (("hot", performance.hot), ("cold", performance.cold if pid is not None else None))
    for temperature, footing in laps:
        if footing is not None:
            timing = footing.timing
            more, unsure = lap_faults(lap, timing.median_ns, timing.calls_per_sample, threads, pid, temperature)
            faults += more
            doubts += unsure
            tests += 2 if pid is not None else 1
    if performance.hot is not None and performance.cold is not None:
        hot, cold = performance.hot.timing, performance.cold.timing
        tests += 1
        # Its fastest hot sample: interference affects some hot samples only. Constant interference affects cold samples
        # too.
        if LIE * cold.high_ns < min(hot.samples_ns) and not held_up:
            found = (
                f"it claims {cold.median_ns:.0f} ns a call, but a hot call takes at least {min(hot.samples_ns):.0f} ns"
            )
            faults.append(Complaint(Guard.CLOCK, f"cold: {found}"))
    status = performance.status
    if faults and status is not Status.ERROR:
        status = Status.FAIL
    elif doubts and status is Status.PASS:
        status = Status.AMBIGUOUS
    limits = performance.limits
    if pid is not None and CpuTimeAccount.of(pid) is None:
        limits += (UNCOUNTED,)
    reason = "; ".join(filter(None, (*map(str, dict.fromkeys(faults)), *doubts, performance.reason)))
    doubted = performance.doubted or bool(faults or doubts)
    # Findings of the candidate's process are added, and remove none of these.
    spoke = in_order((*performance.caught_by, *(fault.guard for fault in faults)))
    return performance.model_copy(
        update={
            "status": status,
            "reason": reason,
            "caught_by": spoke,
            "limits": limits,
            "doubted": doubted,
            "tests": tests,
        }
    )


def statistical(performance: Performance) -> bool:
    """Whether only guards that rest on time questioned a performance."""
    return (
        performance.doubted and performance.status is not Status.ERROR and STATISTICAL.issuperset(performance.caught_by)
    )


def confirmed(first: Performance, again: Callable[[], Performance]) -> Performance:
    """The verdict if a guard that rests on time reported a fault. `again` measures in a fresh process; it is called at
    most once.

    If no guard questions the second measurement, its figures stand, with a remark on the first; times that the first
    refuted are listed as not proven.
    """
    if not statistical(first):
        return first
    spoke = frozenset(first.caught_by)
    second = again()
    count = {"tests": first.tests + second.tests, "repeated": first.repeated + second.repeated + max(1, len(spoke))}
    if second.status is Status.PASS:
        what = " and ".join(sorted(spoke)) or Guard.CLOCK
        remark = f"measured again in a fresh process: guard {what} failed in the first process, and not in the second"
        # A kernel that forges half of its time is refuted in some processes only, where others keep the cores busy.
        limits = (*second.limits, ONCE_REFUTED) if Guard.CLOCK in spoke else second.limits
        reason = "; ".join(filter(None, (remark, second.reason)))
        return second.model_copy(update={**count, "reason": reason, "limits": limits})
    if second.status is Status.FAIL and statistical(second) and spoke and not spoke & frozenset(second.caught_by):
        reason = f"two processes failed for different reasons: {first.reason}; then {second.reason}"
        both = in_order((*first.caught_by, *second.caught_by))
        return second.model_copy(update={**count, "status": Status.AMBIGUOUS, "reason": reason, "caught_by": both})
    return second.model_copy(update=count)


def audit_faults(cases: Cases, audited: Sequence[Audited], exchangeable: Exchangeable = NOTHING) -> list[Complaint]:
    """Faults in the outputs that calls of a timed loop left: one a look and output."""
    known = (cases.first,) if cases.second is None else (cases.first, cases.second)
    faults: list[Complaint] = []
    for look in audited:
        pieces = exchangeable.expected[look.case] if look.case in (0, 1) else ()
        if look.case not in range(len(known)) or not all(piece in range(len(pieces)) for piece in look.exchanged):
            faults.append(
                Complaint(
                    Guard.AUDIT,
                    f"{look.when}: unknown data {look.case!r} with {len(look.exchanged)} exchanged pieces",
                )
            )
            continue
        for nth, expected in enumerate(known[look.case].expected):
            name, dtype, size = expected.name, expected.values.dtype, expected.values.size
            found, begin = look.outputs.get(name), look.begin.get(name, 0)
            length = min(size, PIECE // dtype.itemsize)
            if found is None or found.shape != (length,) or found.dtype != dtype or not 0 <= begin <= size - length:
                faults.append(
                    Complaint(
                        Guard.AUDIT,
                        f"{look.when}: the copy of {name} is no {dtype} array of {length} of its {size} elements",
                    )
                )
                continue
            exchanged = {piece: pieces[piece][nth] for piece in look.exchanged}
            first = _first_wrong(expected, exchanged, exchangeable, found, begin)
            if first is not None:
                at = ", ".join(str(i) for i in np.unravel_index(first.index[0], expected.values.shape))
                faults.append(
                    Complaint(Guard.AUDIT, f"{look.when}: {name}[{at}] is {first.found}, expected {first.expected}")
                )
    return faults


def _first_wrong(
    whole: Expected,
    exchanged: Mapping[int, Expected],
    exchangeable: Exchangeable,
    found: npt.NDArray[Any],
    begin: int,
) -> Divergence | None:
    """The first incorrect element of `found`, which holds the output's elements from flat index `begin` on, with some
    pieces exchanged. Its index is flat, within the whole output.

    Each piece is judged by itself and then overwritten, which needs no second copy of the expected values.
    """
    rest = found.copy() if exchanged else found
    wrong: list[Divergence] = []
    for piece, part in exchanged.items():
        flat = _flat(exchangeable.pieces.each[piece], whole)
        there = flat[inside := (flat >= begin) & (flat < begin + found.size)]
        first = compare(_cut(part, partial(_those, inside)), rest[there - begin]).first
        if first is not None:
            wrong.append(first.model_copy(update={"index": (int(there[first.index[0]]),)}))
        rest[there - begin] = whole.values.reshape(-1)[there]
    first = compare(_piece(whole, begin, found.size), rest).first
    if first is not None:
        wrong.append(first.model_copy(update={"index": (begin + first.index[0],)}))
    return min(wrong, key=lambda each: each.index, default=None)


def _flat(where: Piece, whole: Expected) -> npt.NDArray[np.intp]:
    """Flat indices of a piece's elements within the output, in their order."""
    axis, start, stop = where.outputs[whole.name]
    shape = whole.values.shape
    if axis < 0:
        return np.arange(whole.values.size)
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    rows = np.arange(before)[:, np.newaxis, np.newaxis] * shape[axis] + np.arange(start, stop)[:, np.newaxis]
    found: npt.NDArray[np.intp] = (rows * behind + np.arange(behind)).reshape(-1)
    return found


def _those(inside: npt.NDArray[np.bool_], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.reshape(-1)[inside]


def part_faults(cases: Cases, parts: Sequence[AuditedPiece], exchangeable: Exchangeable) -> list[Complaint]:
    """Faults in the outputs of exchanged pieces: one a look."""
    known = (cases.first,) if cases.second is None else (cases.first, cases.second)
    pieces = exchangeable.pieces.each
    faults: list[Complaint] = []
    for look in parts:
        if (
            look.case not in range(len(known))
            or look.piece not in range(len(pieces))
            or not exchangeable.expected[look.case]
        ):
            faults.append(
                Complaint(Guard.AUDIT, f"{look.when}: unknown piece {look.piece!r} of the data {look.case!r}")
            )
            continue
        where = pieces[look.piece]
        for nth, whole in enumerate(known[look.case].expected):
            found = look.outputs.get(whole.name)
            exchanged = exchangeable.expected[look.case][look.piece][nth]
            expected = exchanged if look.exchanged else _cut(whole, partial(_of, where, whole.name))
            if found is None or found.shape != expected.values.shape or found.dtype != expected.values.dtype:
                faults.append(
                    Complaint(
                        Guard.AUDIT,
                        f"{look.when}: the copy of a piece of {whole.name} has another shape or dtype",
                    )
                )
                continue
            first = compare(expected, found).first
            if first is not None:
                what = "after a piece of its inputs was exchanged"
                faults.append(
                    Complaint(
                        Guard.AUDIT, f"{look.when}: {whole.name} is {first.found}, expected {first.expected}, {what}"
                    )
                )
    return faults


def _of(where: Piece, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(where.of(name, array), order="C")


def _cut(whole: Expected, part: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Expected:
    values = part(whole.values)
    exact = values if whole.exact is whole.values else part(whole.exact)
    return replace(
        whole, values=values, exact=exact, error_bound=None if whole.error_bound is None else part(whole.error_bound)
    )


def _piece(whole: Expected, begin: int, length: int) -> Expected:
    return _cut(whole, lambda array: array.reshape(-1)[begin : begin + length])


def lap_faults(
    lap: Lap, claimed_ns: float, calls: int, threads: int, pid: int | None, temperature: str = "hot"
) -> tuple[list[Complaint], list[str]]:
    """Check the claimed time of a call by this process's clock, and the number of threads by the kernel's account of
    CPU time. Returns faults, and doubts if other processes kept the cores busy. `calls`: number of calls in a
    sample."""

    def here(rounds: int, calls: int) -> None:
        lap(temperature, rounds, calls)

    meanwhile, begun = InterferenceWatch(pid), perf_counter_ns()
    # Laps grow with the time that calls really take: a claim of one nanosecond must not cause a lap of hours.
    most = max(calls, round(_ROUND_NS / claimed_ns))
    turn = 1
    while (taken := _fastest(here, 1, turn, pid, threads)) < _ROUND_NS and turn < most:
        turn = min(turn * _STEP, most)
    rounds = max(1, round(_LAP_NS / max(taken, turn * claimed_ns)))
    asking = _fastest(here, 0, 1, pid, threads)
    times: list[float] = []
    work: list[float] = []
    ran = waited = 0
    start = CpuTimeAccount.of(pid)
    while len(times) < _LAPS or (perf_counter_ns() - begun < _DOUBT_NS and min(times) > LIE * claimed_ns):
        taken, spent = elapsed(here, rounds, turn, pid, threads)
        times.append(max(0, taken - asking) / (rounds * turn))
        if spent is not None:
            work.append(max(0, spent.total - asking) / (rounds * turn * threads))
            ran, waited = ran + sum(spent.threads.values()), waited + sum(spent.waited.values())
    faults, doubts = [], []
    if min(times) > LIE * claimed_ns:
        found = (
            f"{temperature}: it claims {claimed_ns:.0f} ns a call, but the harness's own clock measures "
            f"{min(times):.0f} ns"
        )
        # Time that a hypervisor takes appears in the account of the whole machine, and in CPU time, and in no other.
        held_up = meanwhile.crowded(threads)
        certain = _CERTAIN_ALONE if threads == 1 else _CERTAIN
        decided = (
            bool(work) and min(work) > certain * claimed_ns and (threads == 1 or ran >= _LEAST_SHARE * (ran + waited))
        )
        if held_up and not decided:
            doubts.append(f"{found}; other processes keep the cores busy")
        else:
            faults.append(Complaint(Guard.CLOCK, found))
    at_work = _settled(pid, start, threads)
    if at_work > threads:
        faults.append(
            Complaint(Guard.THREADS, f"{at_work} threads work in its calls, but at most {threads} are allowed")
        )
    if pid != os.getpid() and (begotten := children(pid)):
        faults.append(Complaint(Guard.THREADS, f"it started {begotten} child processes, which a kernel must not"))
    return faults, doubts


def _settled(pid: int | None, start: CpuTimeAccount | None, threads: int) -> int:
    """Number of threads that worked since `start`. If it exceeds the limit, threads that are ending get time to exit:
    beside busy processes, the thread of a past call may still exist when the next one starts."""
    until = perf_counter_ns() + _ENDING_NS
    while True:
        end = CpuTimeAccount.of(pid)
        at_work = 0 if start is None or end is None else end.since(start).at_work
        if at_work <= threads or perf_counter_ns() > until:
            return at_work
        sleep(_ENDING_NS / 1e9 / _LOOKS)


class InterferenceWatch:
    """Load of other processes on a process since this object was made."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._others, self._begun, self._before = SystemLoad(), perf_counter_ns(), CpuTimeAccount.of(pid)

    def crowded(self, threads: int) -> bool:
        """Whether other processes took so much of the cores that so many threads of the process were held up. Without a
        process: that the thread which launches was."""
        busy, now = self._others.cores(), CpuTimeAccount.of(self._pid)
        if busy is not None and self._before is not None and now is not None and self._pid != os.getpid():
            busy -= (now.total - self._before.total) / (perf_counter_ns() - self._begun)
        return crowded(busy, 1 if self._pid is None else threads, len(affinity()), _HELD_UP)


@dataclass(frozen=True, slots=True)
class CpuTimeAccount:
    """The kernel's account of a process, in ns: CPU time of all its threads, including those that ended; CPU time of
    each live thread; and the time for which each live thread was runnable without a core."""

    total: int
    threads: Mapping[str, int]
    waited: Mapping[str, int]

    @staticmethod
    def of(pid: int | None) -> CpuTimeAccount | None:
        """The account so far; None if it is not available."""
        if pid is None:
            return None
        threads, waited = {}, {}
        try:
            for each in os.listdir(f"/proc/{pid}/task"):
                with (
                    suppress(FileNotFoundError, ProcessLookupError),
                    open(f"/proc/{pid}/task/{each}/schedstat", encoding="ascii") as file,
                ):
                    threads[each], waited[each], _ = map(int, file.read().split())
            # The number of a process's clock is part of Linux's interface; see clock_getcpuclockid(3).
            total = clock_gettime_ns((~pid << 3) | 2)
        except OSError:
            return None
        # A process has a thread: where none is reported, this kernel keeps no scheduler statistics.
        return CpuTimeAccount(total, threads, waited) if threads else None

    def since(self, start: CpuTimeAccount) -> CpuTimeAccount:
        """The difference since `start`, for threads that did more than a small share of it."""
        total = self.total - start.total
        did = {each: spent - start.threads.get(each, 0) for each, spent in self.threads.items()}
        some = {each: spent for each, spent in did.items() if spent > _SHARE * total}
        return CpuTimeAccount(total, some, {each: self.waited[each] - start.waited.get(each, 0) for each in some})

    @property
    def at_work(self) -> int:
        """Number of threads at work. All threads that ended meanwhile count as one."""
        rest = self.total - sum(self.threads.values())
        return sum(spent > _LEAST_NS for spent in self.threads.values()) + (
            rest > max(2 * _SHARE * self.total, _TICK_NS)
        )


def children(pid: int | None) -> int:
    """Number of live child processes; 0 if the system does not report it."""
    count = 0
    with suppress(OSError):
        for each in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{each}/children", encoding="ascii") as file:
                count += len(file.read().split())
    return count


def elapsed(
    lap: Callable[[int, int], None], rounds: int, calls: int, pid: int | None, threads: int = 1
) -> tuple[int, CpuTimeAccount | None]:
    """The time of a lap, and the CPU time that the process spent on it. Time in which its threads, or this thread, were
    runnable and other processes ran is left out."""
    start, waited, begun = CpuTimeAccount.of(pid), _waited(), perf_counter_ns()
    lap(rounds, calls)
    wall, end = perf_counter_ns() - begun, CpuTimeAccount.of(pid)
    if start is None or end is None:
        return wall, None
    spent = end.since(start)
    # A thread outside that process waits for a core before it sees the reply.
    own = _waited() - waited if pid != os.getpid() else 0
    # Of as many threads as are allowed, even idle ones: the others spin while one of them has no core.
    waits = sorted((nanoseconds - start.waited.get(each, 0) for each, nanoseconds in end.waited.items()), reverse=True)
    worked = sorted(
        (nanoseconds - start.threads.get(each, 0) for each, nanoseconds in end.threads.items()), reverse=True
    )
    least = worked[threads - 1] if len(worked) >= threads else 0
    return max(wall - own - sum(waits[:threads]), least), spent


def _waited() -> int:
    """Nanoseconds for which this thread was runnable without a core; 0 if the system does not report it."""
    with suppress(OSError), open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])
    return 0


def _fastest(lap: Callable[[int, int], None], rounds: int, calls: int, pid: int | None, threads: int = 1) -> int:
    """The least time of several tries: interference can slow any single one."""
    return min(elapsed(lap, rounds, calls, pid, threads)[0] for _ in range(_LAPS))
