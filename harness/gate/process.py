"""The process in which both builds run. A kernel that crashes ends this process, and the gate continues.

Both builds are in this process. If it cannot or must not hold both, each build has a child process of its own.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tritmark.harness.errors import TritmarkError, UsageError
from tritmark.harness.gate import benchmarks
from tritmark.harness.gate.build_host import BuildHost, LocalBuildHost, RemoteBuildHost
from tritmark.harness.gate.drawn_cases import DrawnComparison, compare_drawn
from tritmark.harness.gate.json_rpc import Child, RemoteError, serve
from tritmark.harness.gate.result import Benchmark
from tritmark.harness.gate.task import GateTask

_OPEN_S = 300.0
_BENCHMARK_S = 900.0


class GateProcess(Child):
    """The gate's side of the process. `why_apart`: why the builds must not share a process, or "". Raises what Child
    raises."""

    def __init__(self, base: Path, head: Path, *, why_apart: str) -> None:
        super().__init__("tritmark.harness.gate.process")
        try:
            self.opened: dict[str, Any] = self.ask("open", _OPEN_S, base=str(base), head=str(head), why=why_apart)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    @property
    def together(self) -> bool:
        """Whether both builds share one process."""
        return bool(self.opened["together"])

    def plan(self, wanted: benchmarks.BenchmarkFilter) -> list[benchmarks.Planned]:
        """Each benchmark, with the refusals of BASE and HEAD on this machine."""
        return [
            benchmarks.Planned.model_validate(each) for each in self.ask("plan", _OPEN_S, wanted=wanted.model_dump())
        ]

    def gate(self, task: GateTask, limits: dict[str, float], *, trust_code: bool) -> Benchmark:
        """See measuring.gate."""
        return Benchmark.model_validate(
            self.ask("gate", _BENCHMARK_S, task=task.model_dump(), limits=limits, trust_code=trust_code)
        )

    def compare(self, task: GateTask, count: int, *, trust_code: bool) -> DrawnComparison:
        """See drawn_cases.compare_drawn."""
        return DrawnComparison.model_validate(
            self.ask("compare", _BENCHMARK_S, task=task.model_dump(), count=count, trust_code=trust_code)
        )


class _Both:
    """The process's side: the hosts of both builds."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._base: BuildHost
        self._head: BuildHost
        self._twin: BuildHost | None = None

    def handle(self, what: str, asked: dict[str, Any], stage: Any) -> Any:
        if what == "open":
            return self._open(**asked)
        if what == "plan":
            return self._plan(benchmarks.BenchmarkFilter.model_validate(asked["wanted"]))
        task = GateTask.model_validate(asked["task"])
        if what == "compare":
            found = compare_drawn(self._base, self._head, task, asked["count"], stage, trust_code=asked["trust_code"])
            return found.model_dump(mode="json")
        from tritmark.harness.gate.measuring import gate
        from tritmark.harness.gate.verdict import GateLimits

        measured = gate(
            self._base,
            self._head,
            task,
            GateLimits(**asked["limits"]),
            stage,
            trust_code=asked["trust_code"],
            twin=self._twin,
        )
        return measured.model_dump(mode="json")

    def close(self) -> None:
        """End the child processes."""
        self._stack.close()

    def _open(self, base: str, head: str, why: str) -> Any:
        if not why:
            try:
                self._base, self._head = LocalBuildHost(Path(base)), LocalBuildHost(Path(head))
            except Exception as error:
                why = f"one process cannot hold both builds: {error}"
        if why:
            # BASE against itself needs two processes too, so that its noise is comparable to BASE against HEAD.
            self._base, self._head, self._twin = (
                self._stack.enter_context(RemoteBuildHost(Path(site))) for site in (base, head, base)
            )
        return {"together": not why, "why": why, "base": self._base.facts(), "head": self._head.facts()}

    def _plan(self, wanted: benchmarks.BenchmarkFilter) -> Any:
        found: list[list[GateTask]] = []
        problems: list[TritmarkError] = []
        for host in (self._head, self._base):
            try:
                found.append(host.tasks(wanted))
            except (UsageError, RemoteError) as error:  # such as a suite file with an op that only one build has
                problems.append(error)
                found.append([])
        if len(problems) == len(found):
            raise problems[0]
        asked = benchmarks.united(*found)
        refused = zip(asked, self._base.refusals(asked), self._head.refusals(asked), strict=True)
        return [benchmarks.Planned(task=task, base=base, head=head).model_dump() for task, base, head in refused]


if __name__ == "__main__":
    from tritmark.harness.machine.cpu import bind_threads

    bind_threads()
    both = _Both()
    serve(both.handle)
    both.close()
    os._exit(0)  # unloading the native code of two builds may crash
