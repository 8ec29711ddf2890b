"""The whole gate: builds, the benchmarks one after the other, alarms confirmed by fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Protocol

from tritmark.harness.errors import UsageError, WorkerError
from tritmark.harness.gate.benchmarks import Planned, Wanted
from tritmark.harness.gate.build import Built, built
from tritmark.harness.gate.json_rpc import Stage, ToldError
from tritmark.harness.gate.measuring import benchmark
from tritmark.harness.gate.process import GateProcess
from tritmark.harness.gate.result import Benchmark, Build, Confirmation, GateResult, Outcome
from tritmark.harness.gate.task import GateTask
from tritmark.harness.gate.verdict import GateLimits

CONFIRMATIONS = 2
"""Fresh launches that have to say SLOWER as well. Where a launch puts its memory and code moves a kernel for as long
as it lives."""

ASKED = "--apart was given"
SEVERAL = "several threads: those of two builds in one process would wait on the same cores"

_OF_BASE = frozenset({Stage.RUNNING_BASE, Stage.MEASURING_BASE})
"""Where a process that ends tells nothing of HEAD."""


class GateObserver(Protocol):
    """Who wants to know how it goes on."""

    def planned(self, total: int) -> None:
        """So many benchmarks."""

    def started(self, what: str) -> None:
        """This is being done."""

    def finished(self, found: Benchmark) -> None:
        """One further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """What was asked for."""

    base: str
    head: str
    wanted: Wanted = field(default_factory=Wanted)
    limits: GateLimits = field(default_factory=GateLimits)
    strict: bool = False
    apart: bool = False
    command: tuple[str, ...] = ()
    trust_code: bool = True
    """Whether identical machine code is taken for what it is; else it is measured."""
    folder: Path | None = None
    """The repository; None for the current directory."""

    @property
    def why_apart(self) -> str:
        """Why the builds must not be in one process, or ""."""
        if self.apart:
            return ASKED
        return SEVERAL if self.wanted.threads > 1 else ""


def run(request: GateRequest, observer: GateObserver) -> GateResult:
    """Everything. An interruption (KeyboardInterrupt) ends it with what is done by then.

    Raises UsageError, BuildError; TritmarkError for builds that no process can hold.
    """
    begun, created = perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    sides = [_built(given, request, observer) for given in (request.base, request.head)]
    observer.started("opening both builds")
    with ExitStack() as stack:
        gate = _Gate(request, sides[0].site, sides[1].site, stack)
        opened = gate.launch.opened
        found: list[Benchmark] = []
        complete = True
        try:
            planned = gate.launch.plan(request.wanted)
            if not planned:
                raise UsageError(
                    f"nothing that suite {request.wanted.suite} measures is left by --op, --variant and --device"
                )
            observer.planned(len(planned))
            for each in gate.benchmarks(planned, observer.started):
                found.append(each)
                observer.finished(each)
        except KeyboardInterrupt:
            if not found:
                raise
            complete = False
        return _result(
            request, sides, opened, found, created=created, seconds=perf_counter() - begun, complete=complete
        )


def _built(given: str, request: GateRequest, observer: GateObserver) -> Built:
    observer.started(f"finding {given}")
    return built(given, observer.started, request.folder)


class _Gate:
    """The launch at work; a new one takes its place where a kernel ended it."""

    def __init__(self, request: GateRequest, base: Path, head: Path, stack: ExitStack) -> None:
        self._request, self._base, self._head, self._stack = request, base, head, stack
        self.launch = self._fresh()

    def benchmarks(self, planned: Sequence[Planned], started: Callable[[str], None]) -> Iterator[Benchmark]:
        """Each verdict, alarms confirmed."""
        for each in planned:
            task, left_out = each.task, _left_out(each)
            if left_out is not None:
                yield left_out
                continue
            started(task.id)
            found = self._one(self.launch, task)
            if found.outcome is Outcome.SLOWER:
                started(f"confirming {task.id}")
                found = confirmed(found, [self._again(task) for _ in range(CONFIRMATIONS)])
            yield found

    def _fresh(self) -> GateProcess:
        return self._stack.enter_context(GateProcess(self._base, self._head, why_apart=self._request.why_apart))

    def _one(self, launch: GateProcess, task: GateTask) -> Benchmark:
        try:
            return launch.gate(task, asdict(self._request.limits), trust_code=self._request.trust_code)
        except ToldError as error:
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
    """An alarm with what fresh processes say of it: SLOWER stays only what all of them call so."""
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
            update={"confirmed": launches, "reason": f"{found.reason}; {agreed} fresh processes say so too"}
        )
    said = "; ".join(each.outcome.value if each.outcome else f"none ({each.reason})" for each in launches)
    reason = (
        f"the first process says SLOWER ({found.reason}), and {agreed} of {len(launches)} fresh processes "
        f"confirm it: {said}"
    )
    return found.model_copy(update={"outcome": Outcome.AMBIGUOUS, "confirmed": launches, "reason": reason})


def _left_out(planned: Planned) -> Benchmark | None:
    """What cannot be compared, and why; None for what can."""
    task, base, head = planned.task, planned.base, planned.head
    if base is not None and base.absent:
        return benchmark(task, Outcome.ADDED, "only HEAD has this kernel")
    if head is not None and head.absent:
        return benchmark(task, Outcome.REMOVED, "only BASE has this kernel")
    if base is None and head is not None:
        return benchmark(task, Outcome.REMOVED, f"BASE runs it here and HEAD does not: {head.reason}")
    if base is not None and head is None:
        return benchmark(task, Outcome.ADDED, f"HEAD runs it here and BASE does not: {base.reason}")
    return None if base is None else benchmark(task, Outcome.NOT_RUN, base.reason)


def _result(
    request: GateRequest,
    sides: Sequence[Built],
    opened: dict[str, dict[str, object]],
    found: Sequence[Benchmark],
    *,
    created: str,
    seconds: float,
    complete: bool,
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
        seconds=seconds,
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
        machine=machine_facts(),
        environment=environment(request.command, wanted.seed),
        benchmarks=tuple(found),
    )
