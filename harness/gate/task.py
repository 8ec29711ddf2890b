"""A task of a gate: one kernel on one workload. It contains no object of a build, so it can be sent to another
process."""

from __future__ import annotations

from tritmark.harness.record import Model
from tritmark.harness.spec import Workload


class GateTask(Model):
    """A kernel by name, and a workload."""

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
        """The id, as in a Run of a Record."""
        return f"{self.kernel} {self.workload.id}"
