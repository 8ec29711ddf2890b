"""What a recovering call reports: what failed, what was tried, and which kernel gave the result."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.errors import TritmarkError
from tritmark.harness.recovery.failures import Diagnosis
from tritmark.harness.recovery.strategies import Strategy


class RecoveryWarning(UserWarning):
    """A kernel failed, and another way gave the result. Issued once for each failed kernel, failure and strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One strategy that was tried."""

    strategy: Strategy
    kernel: str
    """Id of the kernel that began last; "" if none began."""
    failure: Diagnosis | None
    """None if it gave the result."""
    impossible: str = ""
    """Why it could not be tried; "" if it was."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A failure of a kernel, and what became of the call."""

    op: str
    failed: str
    """Id of the kernel that failed first; "" if none had begun."""
    diagnosis: Diagnosis
    tried: tuple[Tried, ...]
    """In order; the last one gave the result, if any did."""
    strategy: Strategy
    """The one that gave the result; NONE if the call was refused."""
    kernel: str
    """Id of the kernel that gave the result; "" if the call was refused."""
    seconds_lost: float
    """Seconds from the start of the call until the worker was ready for the attempt that gave the result; of a refused
    call, all."""
    advice: str
    """The next step for this kind of failure."""
    created: str
    """Time in UTC, ISO 8601."""
    index: int | None = None
    """In a batch, the index of the product, from 0; None for other calls."""

    @property
    def refused(self) -> bool:
        """Whether there is no result."""
        return self.strategy is Strategy.NONE

    def __str__(self) -> str:
        kernel = self.failed or f"a kernel of {self.op}"
        which = "" if self.index is None else f" for product {self.index}"
        text = f"{kernel} failed{which} ({self.diagnosis.kind}: {self.diagnosis.code or self.diagnosis.found})"
        if self.refused:
            tried = ", ".join(each.strategy for each in self.tried)
            return f"{text}; tried: {tried or 'nothing'}"
        return f"{text}; the result is from {self.kernel}, by strategy {self.strategy}"


class UnrecoveredError(TritmarkError, RuntimeError):
    """A kernel failed, and no strategy gave a result. `recovery` has what was tried; outputs are untouched."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        super().__init__(f"{recovery}; {recovery.diagnosis.found}; next: {recovery.advice}")


class NumericalFailureError(UnrecoveredError, ArithmeticError):
    """A kernel gave a NaN or an infinity that the contract excludes. It is incorrect, so nothing else was tried."""
