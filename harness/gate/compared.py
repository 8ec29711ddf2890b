"""Compares every kernel of both builds on drawn cases, before timing. No clock runs, so processes run in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tritmark.harness.errors import WorkerError
from tritmark.harness.gate.benchmarks import Planned
from tritmark.harness.gate.both_built import BuildObserver
from tritmark.harness.gate.drawn_cases import DrawnComparison
from tritmark.harness.gate.json_rpc import RemoteError, Stage
from tritmark.harness.gate.measuring import benchmark
from tritmark.harness.gate.process import GateProcess
from tritmark.harness.gate.result import Benchmark, Outcome
from tritmark.harness.gate.task import GateTask
from tritmark.harness.machine.cpu import affinity

CASES, LEAST = 600, 120
"""Cases of a kernel: the number that `tritmark check` draws; for many kernels, the number that `tritmark run` draws."""

_FEW = 8
"""For up to this many kernels, each gets CASES."""


def cases_each(kernels: int) -> int:
    """The number of cases for each kernel, of `kernels` in all."""
    return max(LEAST, CASES * _FEW // max(_FEW, kernels))


def compared_kernels(
    base: Path, head: Path, planned: Sequence[Planned], observer: BuildObserver, *, trust_code: bool
) -> dict[str, DrawnComparison]:
    """The comparison of each kernel that both builds run, by its id.

    An interruption ends the processes and is raised.
    """
    tasks = list({each.task.kernel: each.task for each in planned if left_out(each) is None}.values())
    found: dict[str, DrawnComparison] = {}
    if not tasks:
        return found
    launches = _Launches(base, head)
    observer.planned(len(tasks))
    observer.started("comparing outputs on drawn cases")
    pool = ThreadPoolExecutor(min(len(affinity()), len(tasks)))
    try:
        count = cases_each(len(tasks))
        of = {pool.submit(launches.compare, task, count, trust_code=trust_code): task for task in tasks}
        for done in as_completed(of):
            found[of[done].kernel] = done.result()
            observer.advanced(len(found))
            observer.started(f"comparing outputs on drawn cases: {of[done].kernel}")
    finally:
        launches.close()
        pool.shutdown(cancel_futures=True)
    return found


def remarks(found: Mapping[str, DrawnComparison]) -> Iterator[str]:
    """Notes on kernels that do not differ: those that could not be compared, and cases that HEAD refuses."""
    for name, each in found.items():
        if each.outcome is None and not each.identical and not each.cases:
            yield f"{name}: no outputs were compared: {each.reason}"
        if each.outcome is None and each.refused:
            asked = each.refused + each.cases
            yield f"{name}: HEAD refuses {each.refused} of {asked} drawn cases that BASE admits"


def left_out(planned: Planned) -> Benchmark | None:
    """The result of a benchmark that cannot be compared, with the reason; None if it can be compared."""
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


class _Launches:
    """Processes that hold both builds, each used by one thread at a time. Outputs are the same with separate processes
    a build, so those are used only if one process cannot hold both."""

    def __init__(self, base: Path, head: Path) -> None:
        self._base, self._head = base, head
        self._idle: SimpleQueue[GateProcess] = SimpleQueue()
        self._all: list[GateProcess] = []
        self._closed = False

    def compare(self, task: GateTask, count: int, *, trust_code: bool) -> DrawnComparison:
        """Compare one kernel, in an idle or a new process."""
        launch = self._idle.get() if not self._idle.empty() else self._new()
        try:
            found = launch.compare(task, count, trust_code=trust_code)
        except RemoteError as error:
            found = DrawnComparison(reason=f"{error.kind}: {error}")
        except WorkerError as error:
            if launch.stage is Stage.RUNNING_HEAD and launch.of:
                return DrawnComparison(outcome=Outcome.ERROR, reason=str(error))
            return DrawnComparison(reason=str(error))
        self._idle.put(launch)
        return found

    def close(self) -> None:
        """End all processes; a comparison that still runs fails."""
        self._closed = True
        for launch in self._all:
            with launch:
                launch.close(at_once=True)

    def _new(self) -> GateProcess:
        launch = GateProcess(self._base, self._head, why_apart="")
        self._all.append(launch)
        if self._closed:
            self.close()
        return launch
