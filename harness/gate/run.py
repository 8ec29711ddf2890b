"""Runs a gate: makes the builds, runs the benchmarks one by one, and confirms alarms in fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Protocol

from tritmark.harness.errors import NothingToCompareError, TritmarkError, UsageError, WorkerError
from tritmark.harness.gate.benchmarks import BenchmarkFilter, Planned
from tritmark.harness.gate.both_built import BuildObserver, both_built
from tritmark.harness.gate.build import Built
from tritmark.harness.gate.compared import compared_kernels, left_out, remarks
from tritmark.harness.gate.drawn_cases import DrawnComparison
from tritmark.harness.gate.given import check_op, same, uncommitted
from tritmark.harness.gate.json_rpc import RemoteError, Stage
from tritmark.harness.gate.measuring import benchmark
from tritmark.harness.gate.part import WHOLE, lacks, part_of
from tritmark.harness.gate.process import GateProcess
from tritmark.harness.gate.result import Benchmark, Build, Confirmation, GateResult, Outcome
from tritmark.harness.gate.task import GateTask
from tritmark.harness.gate.verdict import GateLimits
from tritmark.harness.machine.session import must_suffice
from tritmark.harness.providers import load

CONFIRMATIONS = 2
"""Fresh processes that must report SLOWER too. The addresses of memory and code change a kernel's time for the life of
a process."""

ASKED = "--apart was given"
SEVERAL = "more than one thread: in one process, the threads of both builds would compete for the same cores"

_OF_BASE = frozenset({Stage.RUNNING_BASE, Stage.MEASURING_BASE})
"""Stages in which the end of a process is no evidence about HEAD."""


class GateObserver(BuildObserver, Protocol):
    """Receives the progress of a gate."""

    def noted(self, what: str) -> None:
        """A note that a report shows first."""

    def finished(self, found: Benchmark) -> None:
        """A planned benchmark is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """The arguments of a gate."""

    base: str
    head: str
    wanted: BenchmarkFilter = field(default_factory=BenchmarkFilter)
    limits: GateLimits = field(default_factory=GateLimits)
    strict: bool = False
    apart: bool = False
    command: tuple[str, ...] = ()
    trust_code: bool = True
    """Whether equal machine code is reported as SAME; otherwise it is measured."""
    folder: Path | None = None
    """The repository; None for the current folder."""

    @property
    def why_apart(self) -> str:
        """Why the builds must not share a process, or ""."""
        if self.apart:
            return ASKED
        return SEVERAL if self.wanted.threads > 1 else ""


def run(request: GateRequest, observer: GateObserver) -> GateResult:
    """Run a gate. An interruption (KeyboardInterrupt) ends it with the benchmarks that are complete.

    Raises NothingToCompareError, before anything is built, if BASE and HEAD are the same, and UsageError for an op that
    neither can have. Raises UsageError or BuildError for invalid arguments and failed builds, and TritmarkError for
    builds that no process can load.
    """
    must_suffice()
    if request.wanted.op != "*":
        check_op(request.wanted.op, load().ops, request.base, request.head, request.folder)
    note = uncommitted(request.base, request.head, request.folder)
    if note:
        observer.noted(note)
    nothing = same(request.base, request.head, request.folder) if request.trust_code else ""
    if nothing:
        raise NothingToCompareError(nothing)
    begun, created = perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    notes: tuple[str, ...] = (note,) if note else ()
    with ExitStack() as stack:
        ready = _ready(request, observer, stack)
        notes += tuple(remarks(ready.compared))
        opened = ready.gate.launch.opened
        found: list[Benchmark] = []
        complete = True
        try:
            observer.planned(len(ready.planned))
            for each in ready.gate.benchmarks(ready.planned, ready.compared, observer.started):
                found.append(each)
                observer.finished(each)
        except KeyboardInterrupt:
            if not found:
                raise
            complete = False
        seconds = Seconds(perf_counter() - begun, ready.building)
        return _result(
            request, ready.sides, opened, found, created=created, seconds=seconds, complete=complete, notes=notes
        )


@dataclass(frozen=True, slots=True)
class _Ready:
    """Both builds, opened, with the plan and the comparison of outputs: the state before timing."""

    sides: tuple[Built, Built]
    building: float
    """Seconds."""
    gate: _Gate
    planned: list[Planned]
    compared: dict[str, DrawnComparison]


def _ready(request: GateRequest, observer: GateObserver, stack: ExitStack) -> _Ready:
    """Build, open and compare. Makes whole builds if partial builds lack a module."""
    part = WHOLE if request.wanted.op == "*" else part_of(load(), request.wanted.op)
    begun = perf_counter()
    if part is not WHOLE:
        sides = both_built(request.base, request.head, request.folder, observer, part)
        building = perf_counter() - begun
        with ExitStack() as tried:
            try:
                ready = _opened(request, sides, building, observer, tried)
            except TritmarkError:
                if not any(lacks(side.site) for side in sides):
                    raise
            else:
                if not any(lacks(side.site) for side in sides):
                    stack.enter_context(tried.pop_all())
                    return ready
    sides = both_built(request.base, request.head, request.folder, observer)
    return _opened(request, sides, perf_counter() - begun, observer, stack)


def _opened(
    request: GateRequest, sides: tuple[Built, Built], building: float, observer: GateObserver, stack: ExitStack
) -> _Ready:
    observer.started("opening both builds")
    gate = _Gate(request, sides[0].site, sides[1].site, stack)
    planned = gate.launch.plan(request.wanted)
    if not planned:
        raise UsageError(
            f"no measured workload of suite {request.wanted.suite} matches --op, --variant and --device; "
            "next: widen these globs, or name another --suite"
        )
    compared = compared_kernels(sides[0].site, sides[1].site, planned, observer, trust_code=request.trust_code)
    return _Ready(sides, building, gate, planned, compared)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Duration of a gate, and of building within it."""

    whole: float
    building: float


class _Gate:
    """The current process; a new one replaces it after a kernel ended it."""

    def __init__(self, request: GateRequest, base: Path, head: Path, stack: ExitStack) -> None:
        self._request, self._base, self._head, self._stack = request, base, head, stack
        self.launch = self._fresh()

    def benchmarks(
        self, planned: Sequence[Planned], compared: Mapping[str, DrawnComparison], started: Callable[[str], None]
    ) -> Iterator[Benchmark]:
        """Yield each verdict, with alarms confirmed. A kernel that differs on drawn cases is not measured."""
        for each in planned:
            task, without = each.task, left_out(each)
            if without is not None:
                yield without
                continue
            drawn = compared[task.kernel]
            if drawn.outcome is not None:
                yield benchmark(task, drawn.outcome, drawn.reason, first=drawn.first, cases=drawn.cases)
                continue
            started(task.id)
            found = self._one(self.launch, task)
            if found.outcome is Outcome.SLOWER:
                started(f"confirming {task.id}")
                found = confirmed(found, [self._again(task) for _ in range(CONFIRMATIONS)])
            yield found.model_copy(update={"cases": drawn.cases})

    def _fresh(self) -> GateProcess:
        return self._stack.enter_context(GateProcess(self._base, self._head, why_apart=self._request.why_apart))

    def _one(self, launch: GateProcess, task: GateTask) -> Benchmark:
        try:
            return launch.gate(task, asdict(self._request.limits), trust_code=self._request.trust_code)
        except RemoteError as error:
            return benchmark(task, Outcome.ERROR, f"{error.kind}: {error}")
        except WorkerError as error:
            if launch is self.launch:
                self.launch = self._fresh()
            outcome = Outcome.NOT_RUN if launch.stage in _OF_BASE else Outcome.ERROR
            return benchmark(task, outcome, str(error))

    def _again(self, task: GateTask) -> Benchmark:
        with GateProcess(self._base, self._head, why_apart=self._request.why_apart) as launch:
            return self._one(launch, task)


def confirmed(found: Benchmark, again: Sequence[Benchmark]) -> Benchmark:
    """An alarm with its repetitions in fresh processes. It stays SLOWER only if all of them report SLOWER."""
    speeds = {Outcome.SLOWER, Outcome.FASTER, Outcome.SAME, Outcome.AMBIGUOUS}
    launches = tuple(
        Confirmation(
            outcome=each.outcome if each.outcome in speeds else None,
            reason=each.reason,
            ratio=each.ratio,
            smallest=each.smallest,
            seconds=each.seconds,
            logs=each.logs,
        )
        for each in again
    )
    agreed = sum(each.outcome is Outcome.SLOWER for each in launches)
    if agreed == len(launches):
        return found.model_copy(
            update={"confirmed": launches, "reason": f"{found.reason}; {agreed} fresh processes confirm it"}
        )
    said = "; ".join(each.outcome.value if each.outcome else f"none ({each.reason})" for each in launches)
    reason = (
        f"the first process reports SLOWER ({found.reason}), and {agreed} of {len(launches)} fresh processes "
        f"confirm it: {said}"
    )
    return found.model_copy(update={"outcome": Outcome.AMBIGUOUS, "confirmed": launches, "reason": reason})


def _result(
    request: GateRequest,
    sides: Sequence[Built],
    opened: dict[str, dict[str, object]],
    found: Sequence[Benchmark],
    *,
    created: str,
    seconds: Seconds,
    complete: bool,
    notes: tuple[str, ...],
) -> GateResult:
    from tritmark.harness.record.facts import machine_facts
    from tritmark.harness.record.versions import environment

    base, head = (
        Build.model_validate(
            {
                "given": side.given,
                "commit": side.commit,
                "subject": side.subject,
                "digest": side.digest(),
                **opened[name],
            }
        )
        for name, side in zip(("base", "head"), sides, strict=True)
    )
    wanted = request.wanted
    return GateResult(
        created=created,
        seconds=seconds.whole,
        building_seconds=seconds.building,
        complete=complete,
        base=base,
        head=head,
        suite=wanted.suite,
        op=wanted.op,
        variant=wanted.variant,
        device=wanted.device,
        strict=request.strict,
        budget=request.limits.seconds,
        together=bool(opened["together"]),
        why=str(opened["why"]),
        notes=notes,
        machine=machine_facts(),
        environment=environment(request.command, wanted.seed),
        benchmarks=tuple(found),
    )
