"""The verdict of a check as one small object: what `tritmark.check` returns, and what `tritmark check --json=verdict`
prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.check import shown
from tritmark.harness.check.facts import CheckFacts, FailingInput, FirstDifference, KernelVerdict, NextStep

if TYPE_CHECKING:
    from rich.console import RenderableType


class CheckVerdict(CheckFacts):
    """The verdict of a check. It is true if no verdict is FAIL or ERROR."""

    @property
    def kernel(self) -> KernelVerdict:
        """The kernel that decides."""
        return next(each for each in self.kernels if each.code == self.code)

    @property
    def guard(self) -> str:
        """The guard that detected the fault; "" if none did."""
        return self.kernel.guard

    @property
    def first(self) -> FirstDifference | None:
        """The first incorrect element, or None."""
        return self.kernel.first

    @property
    def failing(self) -> FailingInput | None:
        """The smallest failing input, or None."""
        return self.kernel.failing

    @property
    def score(self) -> float | None:
        """Share of the gap between baseline and ceiling that the kernel closes."""
        return self.kernel.score

    @property
    def ceiling_percent(self) -> float | None:
        """Percent of the ceiling."""
        return self.kernel.ceiling_percent

    @property
    def next(self) -> tuple[NextStep, ...]:
        """The proposals."""
        return self.kernel.next

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return shown.text(self)

    def __repr__(self) -> str:
        return f"<{shown.headline(self)}{f'; {self.first}' if self.first is not None else ''}>"

    def __rich__(self) -> RenderableType:
        return shown.renderable(self)

    def _repr_html_(self) -> str:
        return shown.html(self)
