"""The figures of a sweep, as its pictures and pages need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tritmark.harness.record import Record
from tritmark.harness.sweep import points
from tritmark.harness.sweep.crossing import KernelCrossing, crossovers
from tritmark.harness.sweep.plan import SweepPlan
from tritmark.harness.sweep.points import SweepGrid


@dataclass(frozen=True)
class SweepFigures:
    """A Record of a sweep, with the plan that it follows."""

    record: Record
    plan: SweepPlan

    @cached_property
    def grids(self) -> tuple[SweepGrid, ...]:
        """The figures as lines over the axis, cold before hot, for each combination of the other axes."""
        return points.grids(self.record, self.plan.along)

    @property
    def crossovers(self) -> list[KernelCrossing]:
        """Every crossing of two kernels, in the order of `grids`."""
        return [each for grid in self.grids for each in crossovers(grid)]

    @property
    def too_noisy(self) -> list[str]:
        """The figures that are too noisy to be compared, one sentence each. They are hollow in the plot."""
        return points.noisy(self.grids)

    @property
    def left_out(self) -> list[str]:
        """What has no figure, and why."""
        return points.left_out(self.record)
