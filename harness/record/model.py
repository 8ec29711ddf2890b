"""What all parts of a Record are made of."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

TOO_NOISY = 0.25
"""Half of a figure's 95 % interval, as a share of the figure, above which it is too noisy to compare with others. Two
figures just below it that differ by less than 1.67x cannot be ordered. `python suites/performance/noise_of_records.py`
counts those above it in the Records under results/baselines."""


class Status(StrEnum):
    """How a dimension of a Run ended."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    """The candidate raised or could not be run; `reason` says what."""
    AMBIGUOUS = "ambiguous"
    """A decision could not be taken; `reason` says why."""
    NOT_RUN = "not run"
    """Left out; `reason` says why."""


class Cause(StrEnum):
    """Who wanted it, or what kept this machine from it, where a dimension was NOT RUN and nothing is wrong with
    that."""

    COMMAND = "command line"
    SUITE = "suite"
    ENVIRONMENT = "environment"
    """A variable allows another kernel only."""
    SIMULATOR = "simulator"
    """It has no speed."""
    MACHINE = "machine"
    """The kernel needs what it lacks."""
    DEVICE = "device"
    """It brings no clock."""


class Model(BaseModel):
    """Immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Verdict(Model):
    """A dimension's outcome; everything but PASS has a reason."""

    status: Status
    reason: str = ""
    cause: Cause | None = None
    """Of a NOT RUN that was wanted or cannot be helped here; None before version 6."""

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
    """The first element that is wrong."""

    output: str
    index: tuple[int, ...]
    expected: str
    found: str


class Ratio(Model):
    """A against B, measured by alternating short samples: the median of the adjacent pairs' ratios, with its 95 %
    interval."""

    median: float
    low: float
    high: float
    pairs: int

    @property
    def too_noisy(self) -> bool:
        """Its interval is wider than TOO_NOISY."""
        return half_width(self.median, self.low, self.high) > TOO_NOISY


class Slope(Model):
    """Growth in bytes a call, with the 95 % interval of the slope through all samples."""

    median: float
    low: float
    high: float


def half_width(median: float, low: float, high: float) -> float:
    """Half of the interval from `low` to `high`, as a share of `median`; 0 for an interval without width, and infinite
    for one around 0."""
    if high <= low:
        return 0.0
    return (high - low) / (2 * abs(median)) if median else inf
