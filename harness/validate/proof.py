"""Laps whose outputs are all judged: the time of a kernel that this process can prove.

Samples, audits and figures come from the candidate's process. A candidate can replace the code there, in Python or
through the interpreter. So a claim must hold here too. Memory that both processes share holds one set of arrays for
each call of a lap. Before a lap, this process changes the inputs of some sets and corrupts every output somewhere. Then
it requests one call on each set, by its own clock, and judges the outputs of every call. The kernel cannot skip a call,
however the lap is requested, so the time of a lap is time of work done.

A claim below the fastest lap is refuted. Where an honest kernel was timed, one set of arrays in the caches and huge
pages can make it faster. That gain is at most the gain of a probe that only reads as many bytes. It is measured beside
each lap, since neighbours of a virtual machine slow memory down for seconds, and its median is subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tritmark.harness.errors import UsageError
from tritmark.harness.machine.cpu import caches
from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.buffers import HOST
from tritmark.harness.measure.statistics import median
from tritmark.harness.record import Performance, Status
from tritmark.harness.record.model import TOO_NOISY
from tritmark.harness.spec import Arrays, Axes, Device
from tritmark.harness.validate.audit import LARGE
from tritmark.harness.validate.cases import Cases
from tritmark.harness.validate.ceiling import TELLING
from tritmark.harness.validate.confirm import LIE, CpuTimeAccount, InterferenceWatch, elapsed, statistical
from tritmark.harness.validate.guard_names import Complaint, Guard, in_order
from tritmark.harness.validate.pieces import Exchangeable
from tritmark.harness.validate.shared_sets import SharedSets, set_bytes
from tritmark.harness.worker import tasks
from tritmark.harness.worker.remote import SharedMemory
from tritmark.harness.worker.shared import SharedBlock

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Worker

_LAP_NS = 3_000_000
"""Longest lap by the claim: thirty times the cost of a request, and short enough that some pass undisturbed beside
other processes."""
_MOST_CALLS = 512
_SHARED = 64 << 20
_LAPS = 8
"""Least number of laps, and so of judged calls; see _MOST_NS."""
_DOUBT_NS = 1_000_000_000
_MOST_NS = 3_000_000_000
"""After this time two laps suffice: they take hundreds of times the claim."""
_PROBES = 4
"""Samples of each probe beside a lap, 0.1 to 0.35 ms each."""
_LINE = 128
_IDLE = 0.01


@dataclass(slots=True)
class _Laps:
    """Results of the laps so far."""

    times: list[float] = field(default_factory=list)
    """Nanoseconds a call, with the cost of the request, without the time for which one thread waited for a core."""
    raw: list[float] = field(default_factory=list)
    """The same with all waits: several threads wait at the same time, and the common part is not known."""
    work: list[float] = field(default_factory=list)
    """CPU time a call, from the change before the lap to the check after it."""
    asking: list[float] = field(default_factory=list)
    """Nanoseconds for a request of no calls."""
    busy: list[float] = field(default_factory=list)
    """CPU time of a request of no calls."""
    shown: list[float] = field(default_factory=list)
    """Nanoseconds a call by the clock of the candidate's process."""
    gains: list[dict[str, float]] = field(default_factory=list)
    """Nanoseconds a call by which memory was slower beside that lap than where each claim was timed."""
    looks: int = 0
    faults: list[Complaint] = field(default_factory=list)

    def least(self, calls: int, claim: str, *, alone: bool) -> tuple[float, float]:
        """Lower bound on the time of a call where `claim` was timed, by the fastest lap, and the time that the
        candidate's process reported for that lap.

        By the clock. For a thread that works `alone` also by its CPU time, which other processes do not add to, and
        which includes work done after the lap. The cost of a lap beside its calls, with cold caches, is at most twice
        the cost of a request of no calls.
        """
        found = [(self.times if alone else self.raw, self.asking)]
        if alone and self.work:
            found.append((self.work, self.busy))
        gain = median([beside[claim] for beside in self.gains])
        bounds = []
        for times, asking in found:
            quickest = int(np.argmin(times))
            bound = times[quickest] - 2 * median(asking) / calls - gain
            bounds.append((max(0.0, bound), self.shown[quickest]))
        return max(bounds)

    def slow_clock(self, calls: int) -> Complaint | None:
        """The fault of a process whose clock shows less than the CPU time of a thread that worked alone."""
        if not self.work:
            return None
        quickest = int(np.argmin(self.work))
        least, shown = self.work[quickest] - 2 * median(self.busy) / calls, self.shown[quickest]
        if shown >= (1 - TELLING) * least:
            return None
        return Complaint(
            Guard.CLOCK, f"its process's clock shows {shown:.0f} ns a call for laps that took {least:.0f} ns a call"
        )


def prove(
    worker: Worker,
    performance: Performance,
    cases: Cases,
    encoded: tuple[Arrays, ...],
    axes: Axes,
    changes: Exchangeable,
    *,
    layout: str,
    threads: int,
    seed: int,
) -> Performance:
    """The performance with the results of laps on shared memory. FAIL if outputs are incorrect, or a claim is below the
    proven time. If other processes kept the cores busy, and that rests on the clock of several threads or is less than
    LIE times the claim, a limit states that the claim is not proven. Only for kernels on the host in a process of their
    own.

    Raises what the candidate raises, CandidateError and WorkerError.
    """
    memory = worker.device.memory() if worker.device.memory is not None else None
    timings = {
        name: footing.timing
        for name, footing in (("cold", performance.cold), ("hot", performance.hot))
        if footing is not None
    }
    # Interference in samples widens the interval.
    claims = {name: max(timing.median_ns, timing.high_ns) for name, timing in timings.items()}
    decided = performance.failed and not statistical(performance)
    if decided or not claims or not isinstance(memory, SharedMemory) or worker.pid is None:
        return performance
    nbytes = set_bytes(cases, encoded[0], layout)
    if nbytes > LARGE:
        text = f"its times were not proven by laps: a set of its arrays has {nbytes} bytes, and laps take up to {LARGE}"
        return performance.model_copy(update={"limits": (*performance.limits, text)})
    count = _count(min(timing.median_ns for timing in timings.values()), nbytes)
    rng = np.random.default_rng([seed, nbytes])
    sets = SharedSets(cases, encoded, changes, layout, memory, count)
    given = tuple(sets.given(int(index)) for index in rng.permutation(count))
    worker.call("binding for laps", tasks.bind_row, given, dict(axes), threads)
    near = caches().get("L2", 0) // 2
    probes = _Probes.of(worker.device, count, nbytes, {"read": performance.read, "write": performance.written}, threads)
    meanwhile, begun, found = InterferenceWatch(worker.pid), perf_counter_ns(), _Laps()
    start = CpuTimeAccount.of(worker.pid)
    while True:
        _lap(worker, sets, found, rng, probes)
        alone = threads == 1 or _alone(worker.pid, start)
        spent = perf_counter_ns() - begun
        laps = len(found.times) >= (_LAPS if spent < _MOST_NS else 2)
        proven = {name: found.least(count, name, alone=alone)[0] if laps else 0.0 for name in claims}
        most = {name: _most(name, alone=alone, hot=count * nbytes <= near, cold="cold" in claims) for name in claims}
        refuted = {name: claim for name, claim in claims.items() if proven[name] > most[name] * claim}
        unproven = [name for name, claim in claims.items() if proven[name] > (1 + TOO_NOISY) * claim]
        enough = laps and (not (refuted or unproven) or spent > _DOUBT_NS)
        if found.faults or enough:
            break
    worker.call("releasing its laps", tasks.drop_row)
    busy = meanwhile.crowded(threads)
    # Of several threads the others may have had no core during the laps, and one when the claim was measured.
    alone = alone and not (busy and threads > 1)
    slow = found.slow_clock(count) if alone and not found.faults else None
    found.faults += [] if slow is None else [slow]
    return _judged(performance, found, refuted, proven, busy=busy, alone=alone)


def _most(name: str, *, alone: bool, hot: bool, cold: bool) -> float:
    """Largest admitted ratio of the proven time to the claim. The bound is wide for several threads, which wait for
    each other for an unknown time, and for a kernel that gains from one set that is hotter than the sets of a lap can
    be (`hot`: they are as near)."""
    if name == "hot" and not hot and cold:
        return inf
    if not alone or (name == "hot" and not hot):
        return LIE
    return 1 + (TELLING if name == "cold" else TOO_NOISY)


def _alone(pid: int, start: CpuTimeAccount | None) -> bool:
    """Whether exactly one thread of a process worked since `start`, so that it did not wait for any other."""
    now = CpuTimeAccount.of(pid)
    if now is None or start is None:
        return False
    did = [spent - start.threads.get(each, 0) for each, spent in now.threads.items()]
    return sum(spent > _IDLE * sum(did) for spent in did) == 1


def _judged(
    performance: Performance,
    found: _Laps,
    refuted: dict[str, float],
    proven: dict[str, float],
    *,
    busy: bool,
    alone: bool,
) -> Performance:
    faults, limits = list(dict.fromkeys(found.faults)), performance.limits
    for name, claim in refuted.items():
        # Beside busy processes an honest kernel's CPU time grows too: they share its caches and memory.
        if busy and (not alone or proven[name] <= LIE * claim):
            limits += (f"its {name} time was not proven: other processes kept the cores busy during the laps",)
        else:
            text = f"it claims {claim:.0f} ns a call, but laps whose outputs were judged prove {proven[name]:.0f} ns"
            faults.append(Complaint(Guard.CLOCK, f"{name}: {text}"))
    for name, footing in (("cold", performance.cold), ("hot", performance.hot)):
        if footing is None or name in refuted:
            continue
        # Processes that keep the cores busy fill the caches too.
        if proven[name] > (LIE if busy else 1 + TOO_NOISY) * footing.timing.median_ns:
            limits += (f"its {name} time was not proven: laps whose outputs were judged took longer",)
    return performance.model_copy(
        update={
            "status": Status.FAIL if faults else performance.status,
            "reason": "; ".join(filter(None, (*map(str, faults), performance.reason))),
            "caught_by": in_order((*performance.caught_by, *(fault.guard for fault in faults))),
            "limits": limits,
            "doubted": performance.doubted or bool(faults),
            "tests": performance.tests + 1,
            "looks": found.looks,
            "proven_cold_ns": proven.get("cold"),
            "proven_hot_ns": proven.get("hot"),
        }
    )


def _count(claimed_ns: float, nbytes: int) -> int:
    """Number of sets: one for each call of a lap of _LAP_NS."""
    return max(1, min(ceil(_LAP_NS / claimed_ns), _MOST_CALLS, _SHARED // nbytes))


def _lap(worker: Worker, sets: SharedSets, found: _Laps, rng: np.random.Generator, probes: _Probes) -> None:
    """One lap, the cost of a request, and the gains beside it. The first lap is not timed: first touches of memory are
    slow."""

    def taken(calls: int) -> tuple[float, float, float | None, float]:
        shown = 0.0

        def ask(rounds: int, calls: int) -> None:
            nonlocal shown
            shown = worker.call("a judged lap", tasks.run_row, calls)

        before, begun = CpuTimeAccount.of(worker.pid), perf_counter_ns()
        without, _ = elapsed(ask, 1, calls, worker.pid)
        wall = perf_counter_ns() - begun
        if calls:
            more, judged = sets.faults(f"lap {len(found.times)}", rng)
            found.faults += more
            found.looks += judged
        after = CpuTimeAccount.of(worker.pid)
        return without, wall, None if before is None or after is None else after.total - before.total, shown

    first = not found.looks
    sets.change(rng)
    without, wall, busy, shown = taken(sets.count)
    if first:
        return
    found.times.append(without / sets.count)
    found.raw.append(wall / sets.count)
    if busy is not None:
        found.work.append(busy / sets.count)
    found.shown.append(shown / sets.count)
    asking, _, idle, _ = taken(0)
    found.asking.append(asking)
    found.busy.append(idle or 0.0)
    found.gains.append(probes.gains())


@dataclass(slots=True)
class _Probes:
    """Probes that only move memory, for each direction: as in a lap, as where hot claims were timed, and as where cold
    ones were."""

    sides: list[tuple[Timed, Timed, Timed]]

    @classmethod
    def of(cls, device: Device, count: int, nbytes: int, moved: Mapping[str, int], threads: int) -> Self:
        """For laps of `count` sets of `nbytes` in shared memory. Hot: one buffer of huge pages. Cold: many of them."""
        shared = SharedBlock(count * nbytes).bytes.reshape(count, nbytes)
        many = HOST.allocate(count * nbytes).reshape(count, nbytes)
        shared[...] = many[...] = 1  # pages that were never written all map to one zero page
        sides = []
        for name, each in moved.items():
            size = min(each, nbytes) // _LINE * _LINE
            if size:
                rows = ([row[:size] for row in shared], [many[0][:size]], [row[:size] for row in many])
                lap, hot, cold = (_probe(device, name, row, threads) for row in rows)
                sides.append((lap, hot, cold))
        return cls(sides)

    def gains(self) -> dict[str, float]:
        """Nanoseconds by which hot and cold buffers are moved faster than those of a lap."""
        found = {"hot": 0.0, "cold": 0.0}
        for sides in self.sides:
            lap, *others = map(min, zip(*([side.sample() for side in sides] for _ in range(_PROBES)), strict=True))
            for name, other in zip(found, others, strict=True):
                found[name] += lap - other
        return {name: max(0.0, gain) for name, gain in found.items()}


def _probe(device: Device, name: str, buffers: Sequence[Any], threads: int) -> Timed:
    """The probe of that name on the buffers in sequence."""
    probe = next((each for each in device.ceilings().values() if each.name == name), None)
    if probe is None or device.clock is None:
        raise UsageError(f"device {device.type!r} has no clock or no probe for {name!r}; its provider must supply both")
    side = Timed([probe.bind(buffer, threads) for buffer in buffers], device.clock())
    side.take(len(side.launches))
    calibrate(side)
    return side
