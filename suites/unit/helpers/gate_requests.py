"""Requests for tests of the gate, and a silent observer."""

from __future__ import annotations

from tritmark.harness.gate.result import Benchmark
from tritmark.harness.gate.task import GateTask

TASK = GateTask(
    device="plain",
    op="double",
    format="none",
    dtype="float32",
    variant="v",
    axes={"n": 1},
    family="normal",
    layout="aligned",
    threads=1,
)


class Silent:
    def planned(self, total: int) -> None: ...
    def noted(self, what: str) -> None: ...
    def started(self, what: str) -> None: ...
    def advanced(self, done: int) -> None: ...
    def finished(self, found: Benchmark) -> None: ...
