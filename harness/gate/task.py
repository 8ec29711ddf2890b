"""What a gate runs: one kernel on one workload, said without any object of a build, so that it can be told to
another process."""

from __future__ import annotations

from tritmark.harness.record import Model
from tritmark.harness.spec import Workload


class GateTask(Model):
    """A kernel by its names, and the workload."""

    device: str
    op: str
    format: str
    dtype: str
    variant: str
    axes: dict[str, int]
    family: str
    layout: str
    threads: int
    seed: int = 0
    title: str = ""

    @property
    def kernel(self) -> str:
        """The variant's id."""
        return f"{self.device}/{self.op}/{self.format}/{self.dtype}/{self.variant}"

    @property
    def workload(self) -> Workload:
        """The workload, measured."""
        return Workload(
            op=self.op, axes=self.axes, family=self.family, layout=self.layout, measure=True, title=self.title
        )

    @property
    def id(self) -> str:
        """As a Record's Run has it."""
        return f"{self.kernel} {self.workload.id}"
