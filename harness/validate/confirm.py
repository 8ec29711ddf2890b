"""What the process that holds the expected values makes of a measurement that was taken in another.

Times, counts and audits come from the process of the candidate, which could forge them. The expected values, the clock and the kernel's
account of CPU time are here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import clock_gettime_ns, perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.others import Others, crowded
from tritmark.harness.record import Performance, Status
from tritmark.harness.validate.audit import PIECE, Audited
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.compare import Expected, compare

Lap = Callable[[int, int], None]
"""lap(rounds, calls) makes `rounds` times `calls` calls of the hot launch, back to back, and returns."""

LIE = 2.0
"""A lap that takes this many times what was claimed refutes the claim. Asking another process, and what the clock leaves out of each round
(a device's launches are handed over before its clock begins), are up to half of it."""

_ROUND_NS = 2_000_000
_LAP_NS = 20_000_000
_LAPS = 3
_DOUBT_NS = 1_000_000_000
"""A claim that seems refuted is looked at for so long: others may only have been busy, and over less time what they do is not known."""

_STEP = 8
_SHARE = 0.15
"""Of the CPU time of a lap: what does less is no thread that was started to share the work."""

_LEAST_NS = 2_000_000
_CERTAIN = 8.0
"""So many times what was claimed, as CPU time, is not what others can do to it."""
_HELD_UP = 0.05


def confirm(performance: Performance, audited: Sequence[Audited], cases: Cases, lap: Lap, *, threads: int, pid: int | None) -> Performance:
    """The performance with what is found here: FAIL, or AMBIGUOUS where others kept the machine busy.

    `lap` calls what was measured, where it was measured: in the process `pid`, which is None for a device that works by itself.
    """
    faults = audit_faults(cases, audited)
    doubts: list[str] = []
    if performance.hot is not None:
        timing = performance.hot.timing
        more, doubts = lap_faults(lap, timing.median_ns, timing.calls_per_sample, threads, pid)
        faults += more
    status = performance.status
    if faults and status is not Status.ERROR:
        status = Status.FAIL
    elif doubts and status is Status.PASS:
        status = Status.AMBIGUOUS
    reason = "; ".join(filter(None, (*dict.fromkeys(faults), *doubts, performance.reason)))
    return performance.model_copy(update={"status": status, "reason": reason})


def audit_faults(cases: Cases, audited: Sequence[Audited]) -> list[str]:
    """What is wrong with the outputs that calls of a timed loop left, one line for each output of each look."""
    known = (cases.first,) if cases.second is None else (cases.first, cases.second)
    faults: list[str] = []
    for look in audited:
        if look.case not in range(len(known)):
            faults.append(f"guard audit: {look.when}: there is no data {look.case!r}")
            continue
        for expected in known[look.case].expected:
            name, dtype, size = expected.name, expected.values.dtype, expected.values.size
            found, begin = look.outputs.get(name), look.begin.get(name, 0)
            length = min(size, PIECE // dtype.itemsize)
            if found is None or found.shape != (length,) or found.dtype != dtype or not 0 <= begin <= size - length:
                faults.append(f"guard audit: {look.when}: what was kept of {name} is no {dtype} array of {length} out of {size} elements")
                continue
            first = compare(_piece(expected, begin, length), found).first
            if first is not None:
                at = ", ".join(str(i) for i in np.unravel_index(begin + first.index[0], expected.values.shape))
                faults.append(f"guard audit: {look.when}: {name}[{at}] is {first.found}, expected {first.expected}")
    return faults


def _piece(whole: Expected, begin: int, length: int) -> Expected:
    def part(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.reshape(-1)[begin : begin + length]

    values = part(whole.values)
    exact = values if whole.exact is whole.values else part(whole.exact)
    return replace(whole, values=values, exact=exact, bound=None if whole.bound is None else part(whole.bound))


def lap_faults(lap: Lap, claimed_ns: float, calls: int, threads: int, pid: int | None) -> tuple[list[str], list[str]]:
    """Whether this process's clock confirms the claimed time of a call, and the kernel's account of CPU time the number of threads: faults,
    and doubts where others kept the cores busy. `calls` is how many calls a sample had."""
    others, begun, before = Others(), perf_counter_ns(), Account.of(pid)
    # A claim of a nanosecond must not make a lap of hours, so what is asked for grows with what it really takes.
    most = max(calls, round(_ROUND_NS / claimed_ns))
    turn = 1
    while (taken := _fastest(lap, 1, turn, pid)) < _ROUND_NS and turn < most:
        turn = min(turn * _STEP, most)
    rounds = max(1, round(_LAP_NS / max(taken, turn * claimed_ns)))
    asking = _fastest(lap, 0, 1, pid)
    times: list[float] = []
    work: list[float] = []
    at_work: list[int] = []
    while len(times) < _LAPS or (perf_counter_ns() - begun < _DOUBT_NS and min(times) > LIE * claimed_ns):
        taken, spent = _timed(lap, rounds, turn, pid)
        times.append(max(0, taken - asking) / (rounds * turn))
        if spent is not None:
            work.append(max(0, spent.total - asking) / (rounds * turn * threads))
            at_work.append(spent.at_work)
    faults, doubts = [], []
    if min(times) > LIE * claimed_ns:
        found = f"hot: {claimed_ns:.0f} ns a call are claimed, and by the harness's own clock it takes {min(times):.0f} ns"
        busy, now = others.cores(), Account.of(pid)
        if busy is not None and before is not None and now is not None and pid != os.getpid():
            busy -= (now.total - before.total) / (perf_counter_ns() - begun)
        # What a hypervisor takes meanwhile is in no account but that of the whole machine, and in CPU time.
        held_up = pid is not None and crowded(busy, threads, os.cpu_count() or 1, _HELD_UP)
        if held_up and not (work and min(work) > _CERTAIN * claimed_ns):
            doubts.append(f"{found}; others keep the cores busy")
        else:
            faults.append(f"guard clock: {found}")
    if at_work and min(at_work) > threads:
        faults.append(f"guard threads: {min(at_work)} threads work in its calls, and {threads} were allowed")
    return faults, doubts


@dataclass(frozen=True, slots=True)
class Account:
    """What the kernel knows of a process, in ns: CPU time of all its threads, those that ended included, that of each that lives, and how
    long each of these could have run and had no core."""

    total: int
    threads: Mapping[str, int]
    waited: Mapping[str, int]

    @staticmethod
    def of(pid: int | None) -> Account | None:
        """The account so far; None where it cannot be had."""
        if pid is None:
            return None
        threads, waited = {}, {}
        try:
            for each in os.listdir(f"/proc/{pid}/task"):
                with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{each}/schedstat", encoding="ascii") as file:
                    threads[each], waited[each], _ = map(int, file.read().split())
            # How a process's clock is numbered is part of Linux's interface; see clock_getcpuclockid(3).
            return Account(clock_gettime_ns((~pid << 3) | 2), threads, waited)
        except OSError:
            return None

    def since(self, start: Account) -> Account:
        """What was added since then, of threads that did more than a small share of it."""
        total = self.total - start.total
        did = {each: spent - start.threads.get(each, 0) for each, spent in self.threads.items()}
        some = {each: spent for each, spent in did.items() if spent > _SHARE * total}
        return Account(total, some, {each: self.waited[each] - start.waited.get(each, 0) for each in some})

    @property
    def at_work(self) -> int:
        """How many threads there are; those that ended meanwhile count as one."""
        rest = self.total - sum(self.threads.values())
        return sum(spent > _LEAST_NS for spent in self.threads.values()) + (rest > max(2 * _SHARE * self.total, _LEAST_NS))


def _timed(lap: Lap, rounds: int, calls: int, pid: int | None) -> tuple[int, Account | None]:
    """What a lap took, and what the process spent on it. Time in which its threads could have run and others did is left out."""
    start, begun = Account.of(pid), perf_counter_ns()
    lap(rounds, calls)
    wall, end = perf_counter_ns() - begun, Account.of(pid)
    if start is None or end is None:
        return wall, None
    spent = end.since(start)
    return max(wall - sum(spent.waited.values()), max(spent.threads.values(), default=0)), spent


def _fastest(lap: Lap, rounds: int, calls: int, pid: int | None) -> int:
    """What it takes at least: others can hold up any one try."""
    return min(_timed(lap, rounds, calls, pid)[0] for _ in range(_LAPS))
