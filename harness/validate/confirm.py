"""What the process that holds the expected values makes of a measurement that was taken in another.

Times, counts and audits come from the process of the candidate, which could forge them. The expected values, the clock
and the kernel's account of CPU time are here.

A wrong output is wrong. What rests on time is a test that an honest kernel fails now and then: when the machine was
fast while samples were taken and slow in the lap, say. Such a FAIL stands only when a fresh process says it again by
the same guard. If a guard is wrong in one of a hundred measurements, more than was seen on busy machines, it is wrong
twice in one of ten thousand, and the hundred tests of an invocation share one false alarm in a hundred.
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
"""lap("cold" or "hot", rounds, calls) makes `rounds` times `calls` calls of what was timed, back to back, and
returns."""

STATISTICAL = frozenset({Guard.CLOCK, Guard.FLOOR, Guard.THREADS, Guard.LATE})
"""Guards that rest on time, and have to say it twice."""

LIE = 2.0
"""A lap that takes this many times what was claimed refutes the claim. Asking another process, and what the clock
leaves out of each round (a device's launches are handed over before its clock begins), are up to half of it."""

_ROUND_NS = 2_000_000
_LAP_NS = 10_000_000
_LAPS = 3
_DOUBT_NS = 1_000_000_000
"""A claim that seems refuted is looked at for so long: others may only have been busy, and over less time what they
do is not known."""

_STEP = 8
_SHARE = 0.15
"""Of the CPU time of a lap: what does less is no thread that was started to share the work."""

UNCOUNTED = (
    "how many threads work in its calls was not looked at, and its times may hold what others took: "
    "/proc/PID/task/TID/schedstat cannot be read"
)
"""What a performance verdict does not cover where the kernel keeps no account of threads."""

_LEAST_NS = 2_000_000
_TICK_NS = 4_000_000
"""How often the kernel brings the account of a running thread up to date, as distributions set it (250 a second);
until then its work looks like that of a thread that has ended. Of three laps of _LAP_NS a tick of 10 ms is too
little a share to count."""

_ENDING_NS, _LOOKS = 500_000_000, 10
"""That a thread may take from the end of its work to its own, on cores that others have, and how often it is looked for
meanwhile: looking takes time of this process, which may be the one that is looked at."""

_CERTAIN = 8.0
"""So many times what was claimed, as CPU time, is not what others can do to it: threads that wait for one without a
core spin meanwhile."""
_LEAST_SHARE = 0.4
"""Of the time in which its threads could run, what they must have had for CPU time to prove anything. Beside one
other a core it is a half, beside two a third. With less, threads that share their work seldom run at the same
moment, and spin while they wait for each other."""
_CERTAIN_ALONE = 2 * LIE
"""The same of a single thread, which waits for nobody: whoever shares its core with it takes half of that."""
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
    """The performance with what is found here: FAIL, or AMBIGUOUS where a guard doubts and others kept the machine too
    busy to decide. `left`: what is wrong with the outputs that its calls left.

    `held_up`: whether others took so much of the cores while it was measured that times of different moments cannot be
    compared. `lap` calls what was measured, where it was measured: in the process `pid`, which is None for a device
    that works by itself.
    """
    faults = list(left)
    doubts: list[str] = []
    tests = performance.tests
    # A device is handed launches on many buffers one by one, which takes several times as long as they do: there only
    # hot ones tell.
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
        # Its fastest hot sample: others hold up some, and what they hold up all the time they hold up in cold samples
        # too.
        if LIE * cold.high_ns < min(hot.samples_ns) and not held_up:
            found = (
                f"{cold.median_ns:.0f} ns a call are claimed, and hot, in caches, it takes {min(hot.samples_ns):.0f} "
                "ns at least"
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
    # What the candidate's process says of itself is added to, and takes nothing from what was found here.
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
    """Whether a performance was doubted by nothing but guards that rest on time."""
    return (
        performance.doubted and performance.status is not Status.ERROR and STATISTICAL.issuperset(performance.caught_by)
    )


def confirmed(first: Performance, again: Callable[[], Performance]) -> Performance:
    """The verdict where a guard that rests on time has spoken: `again` measures once more in a fresh process, and is
    asked once at most.

    Where the second measurement is not doubted, its figures stand, with a remark on the first.
    """
    if not statistical(first):
        return first
    spoke = frozenset(first.caught_by)
    second = again()
    count = {"tests": first.tests + second.tests, "repeated": first.repeated + second.repeated + max(1, len(spoke))}
    if second.status is Status.PASS:
        what = " and ".join(sorted(spoke)) or Guard.CLOCK
        remark = f"measured in a fresh process once more, for {what} had spoken up in the first and did not again"
        return second.model_copy(update={**count, "reason": "; ".join(filter(None, (remark, second.reason)))})
    if second.status is Status.FAIL and statistical(second) and spoke and not spoke & frozenset(second.caught_by):
        reason = f"two processes were doubted for different reasons: {first.reason}; and then {second.reason}"
        both = in_order((*first.caught_by, *second.caught_by))
        return second.model_copy(update={**count, "status": Status.AMBIGUOUS, "reason": reason, "caught_by": both})
    return second.model_copy(update=count)


def audit_faults(cases: Cases, audited: Sequence[Audited], exchangeable: Exchangeable = NOTHING) -> list[Complaint]:
    """What is wrong with the outputs that calls of a timed loop left, one line for each output of each look."""
    known = (cases.first,) if cases.second is None else (cases.first, cases.second)
    faults: list[Complaint] = []
    for look in audited:
        pieces = exchangeable.expected[look.case] if look.case in (0, 1) else ()
        if look.case not in range(len(known)) or not all(piece in range(len(pieces)) for piece in look.exchanged):
            faults.append(
                Complaint(
                    Guard.AUDIT,
                    f"{look.when}: there is no data {look.case!r} with {len(look.exchanged)} pieces exchanged",
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
                        f"{look.when}: what was kept of {name} is no {dtype} array of {length} out of {size} elements",
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
    """The first wrong element of `found`, the output's elements from flat index `begin` on, some pieces of which have
    been exchanged; its index is flat, within the whole output.

    What follows from each piece is judged by itself and then taken out, which needs no second copy of what is expected.
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
    """What is wrong with the outputs of pieces that were exchanged, one line for each look."""
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
                Complaint(Guard.AUDIT, f"{look.when}: there is no piece {look.piece!r} of the data {look.case!r}")
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
                        f"{look.when}: what was kept of a piece of {whole.name} is not an array of its shape",
                    )
                )
                continue
            first = compare(expected, found).first
            if first is not None:
                what = "after a piece of its inputs had been exchanged"
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
    """Whether this process's clock confirms the claimed time of a call, and the kernel's account of CPU time the
    number of threads: faults, and doubts where others kept the cores busy. `calls` is how many calls a sample had."""

    def here(rounds: int, calls: int) -> None:
        lap(temperature, rounds, calls)

    meanwhile, begun = InterferenceWatch(pid), perf_counter_ns()
    # A claim of a nanosecond must not make a lap of hours, so what is asked for grows with what it really takes.
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
            f"{temperature}: {claimed_ns:.0f} ns a call are claimed, and by the harness's own clock it takes "
            f"{min(times):.0f} ns"
        )
        # What a hypervisor takes meanwhile is in no account but that of the whole machine, and in CPU time.
        held_up = meanwhile.crowded(threads)
        certain = _CERTAIN_ALONE if threads == 1 else _CERTAIN
        decided = (
            bool(work) and min(work) > certain * claimed_ns and (threads == 1 or ran >= _LEAST_SHARE * (ran + waited))
        )
        if held_up and not decided:
            doubts.append(f"{found}; others keep the cores busy")
        else:
            faults.append(Complaint(Guard.CLOCK, found))
    at_work = _settled(pid, start, threads)
    if at_work > threads:
        faults.append(Complaint(Guard.THREADS, f"{at_work} threads work in its calls, and {threads} were allowed"))
    if pid != os.getpid() and (begotten := children(pid)):
        faults.append(Complaint(Guard.THREADS, f"it started {begotten} processes that live beside its calls"))
    return faults, doubts


def _settled(pid: int | None, start: CpuTimeAccount | None, threads: int) -> int:
    """How many threads worked since then. Where they are more than allowed, what has ended gets time to be gone: beside
    busy processes the last thread of a kernel that begins one in each call is still there, beside those before it."""
    until = perf_counter_ns() + _ENDING_NS
    while True:
        end = CpuTimeAccount.of(pid)
        at_work = 0 if start is None or end is None else end.since(start).at_work
        if at_work <= threads or perf_counter_ns() > until:
            return at_work
        sleep(_ENDING_NS / 1e9 / _LOOKS)


class InterferenceWatch:
    """What others do to a process from when this is made."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._others, self._begun, self._before = SystemLoad(), perf_counter_ns(), CpuTimeAccount.of(pid)

    def crowded(self, threads: int) -> bool:
        """Whether they took so much of the cores that so many threads of the process were held up; never where there
        is no process."""
        busy, now = self._others.cores(), CpuTimeAccount.of(self._pid)
        if busy is not None and self._before is not None and now is not None and self._pid != os.getpid():
            busy -= (now.total - self._before.total) / (perf_counter_ns() - self._begun)
        return self._pid is not None and crowded(busy, threads, len(affinity()), _HELD_UP)


@dataclass(frozen=True, slots=True)
class CpuTimeAccount:
    """What the kernel knows of a process, in ns: CPU time of all its threads, those that ended included, that of
    each that lives, and how long each of these could have run and had no core."""

    total: int
    threads: Mapping[str, int]
    waited: Mapping[str, int]

    @staticmethod
    def of(pid: int | None) -> CpuTimeAccount | None:
        """The account so far; None where it cannot be had."""
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
            # How a process's clock is numbered is part of Linux's interface; see clock_getcpuclockid(3).
            total = clock_gettime_ns((~pid << 3) | 2)
        except OSError:
            return None
        # A process has a thread: where none is reported, this kernel keeps no scheduler statistics.
        return CpuTimeAccount(total, threads, waited) if threads else None

    def since(self, start: CpuTimeAccount) -> CpuTimeAccount:
        """What was added since then, of threads that did more than a small share of it."""
        total = self.total - start.total
        did = {each: spent - start.threads.get(each, 0) for each, spent in self.threads.items()}
        some = {each: spent for each, spent in did.items() if spent > _SHARE * total}
        return CpuTimeAccount(total, some, {each: self.waited[each] - start.waited.get(each, 0) for each in some})

    @property
    def at_work(self) -> int:
        """How many threads there are; those that ended meanwhile count as one."""
        rest = self.total - sum(self.threads.values())
        return sum(spent > _LEAST_NS for spent in self.threads.values()) + (
            rest > max(2 * _SHARE * self.total, _TICK_NS)
        )


def children(pid: int | None) -> int:
    """How many processes that one has started are alive; 0 where the system does not tell."""
    count = 0
    with suppress(OSError):
        for each in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{each}/children", encoding="ascii") as file:
                count += len(file.read().split())
    return count


def elapsed(
    lap: Callable[[int, int], None], rounds: int, calls: int, pid: int | None, threads: int = 1
) -> tuple[int, CpuTimeAccount | None]:
    """What a lap took, and what the process spent on it. Time in which its threads, or this one, could have run and
    others did is left out."""
    start, waited, begun = CpuTimeAccount.of(pid), _waited(), perf_counter_ns()
    lap(rounds, calls)
    wall, end = perf_counter_ns() - begun, CpuTimeAccount.of(pid)
    if start is None or end is None:
        return wall, None
    spent = end.since(start)
    # This thread, where it is not one of the process's, waits for a core before it sees the reply.
    own = _waited() - waited if pid != os.getpid() else 0
    # Of as many threads as are allowed, however little they did: the others spin for as long as one of them has no
    # core.
    waits = sorted((nanoseconds - start.waited.get(each, 0) for each, nanoseconds in end.waited.items()), reverse=True)
    worked = sorted(
        (nanoseconds - start.threads.get(each, 0) for each, nanoseconds in end.threads.items()), reverse=True
    )
    least = worked[threads - 1] if len(worked) >= threads else 0
    return max(wall - own - sum(waits[:threads]), least), spent


def _waited() -> int:
    """Nanoseconds that this thread could have run so far and had no core; 0 where the system does not tell."""
    with suppress(OSError), open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])
    return 0


def _fastest(lap: Callable[[int, int], None], rounds: int, calls: int, pid: int | None, threads: int = 1) -> int:
    """What it takes at least: others can hold up any one try."""
    return min(elapsed(lap, rounds, calls, pid, threads)[0] for _ in range(_LAPS))
