"""Types that all parts of a Record use."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

TOO_NOISY = 0.25
"""Half width of a 95 % interval, as a share of the figure, above which the figure is too noisy for comparisons.

Two figures just below it that differ by less than 1.67x cannot be ordered.
`python suites/performance/noise_of_records.py` counts the figures above it in the Records under results/baselines."""


class Status(StrEnum):
    """Result of a dimension of a Run."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    """The kernel crashed, hung, raised an exception or asked for too much memory; `reason` states which."""
    AMBIGUOUS = "ambiguous"
    """No decision was possible; `reason` states why."""
    NOT_RUN = "not run"
    """Not judged; `reason` states why."""


class Cause(StrEnum):
    """Cause of a NOT RUN that is not a fault."""

    COMMAND = "command line"
    """The command line excluded the dimension."""
    SUITE = "suite"
    """The suite excluded the dimension."""
    ENVIRONMENT = "environment"
    """An environment variable allows only another kernel."""
    SIMULATOR = "simulator"
    """A simulator has no speed."""
    MACHINE = "machine"
    """The machine lacks a feature that the kernel requires."""
    DEVICE = "device"
    """The device provides no clock."""


class Model(BaseModel):
    """Immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Verdict(Model):
    """Result of one dimension. Each status except PASS has a reason."""

    status: Status
    reason: str = ""
    cause: Cause | None = None
    """Of a NOT RUN that is not a fault; None otherwise, and before version 6."""

    @property
    def failed(self) -> bool:
        """FAIL or ERROR."""
        return self.status in {Status.FAIL, Status.ERROR}

    @model_validator(mode="after")
    def _reason_given(self) -> Self:
        if self.status is not Status.PASS and not self.reason:
            raise ValueError(f"status {self.status.value} needs a reason")
        return self


class Divergence(Model):
    """The first incorrect element of an output."""

    output: str
    index: tuple[int, ...]
    expected: str
    found: str


class Ratio(Model):
    """Ratio of two interleaved codes: the median of the ratios of adjacent pairs, with its 95 % interval."""

    median: float
    low: float
    high: float
    pairs: int
    """Number of pairs."""

    @property
    def too_noisy(self) -> bool:
        """Half of the interval is wider than TOO_NOISY."""
        return half_width(self.median, self.low, self.high) > TOO_NOISY


class Slope(Model):
    """Growth in bytes per call, with the 95 % interval of the slope through all samples."""

    median: float
    low: float
    high: float


def half_width(median: float, low: float, high: float) -> float:
    """Half width of the interval [`low`, `high`] as a share of `median`; 0 for an empty interval, infinite for a median
    of 0."""
    if high <= low:
        return 0.0
    return (high - low) / (2 * abs(median)) if median else inf
