"""The criteria of one machine as data, for JSON. Times are nanoseconds."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tritmark.harness.record import Environment, Machine, MachineLoad, Model, Ratio, Status

SCHEMA_VERSION = 1

SPEED = frozenset({"speedup", "scaling", "latency", "migration"})
"""Kinds that a simulator cannot judge."""


class Unit(StrEnum):
    """The unit of a figure."""

    TIMES = "x"
    SHARE = "share"
    BYTES = "bytes"
    BYTES_PER_CALL = "bytes per call"
    NS = "ns"
    COUNT = "count"


class MeasuredFigure(Model):
    """A measured value; `low` and `high` are its 95 % interval."""

    name: str
    value: float
    unit: Unit
    low: float | None = None
    high: float | None = None


class SizePoint(Model):
    """Two interleaved measurements at one size: the time of `other` over the time of `kernel`."""

    size: int
    ratio: Ratio
    kernel_ns: float
    other_ns: float


class Crossover(Model):
    """Who wins at which size, as far as measured."""

    kernel_from: int | None = None
    """The least size from which on the kernel is faster at every measured size; None if there is none."""
    baseline_to: int | None = None
    """The largest size up to which the baseline is faster at every measured size; None if there is none."""


class CriterionResult(Model):
    """One criterion. FAIL and NOT RUN have a reason. A simulated figure of speed is never a PASS."""

    id: str
    kind: str
    source: str
    words: str
    threshold: float
    status: Literal[Status.PASS, Status.FAIL, Status.NOT_RUN]
    reason: str = ""
    figures: tuple[MeasuredFigure, ...] = ()
    """The first one is compared with `threshold`."""
    kernel: str = ""
    """Id of the kernel, with its thread count."""
    baseline: str = ""
    """What it was compared with."""
    points: tuple[SizePoint, ...] = ()
    crossover: Crossover | None = None
    notes: tuple[str, ...] = ()
    """What limits or explains the figure."""
    failures: tuple[str, ...] = ()
    """The calls or elements that are incorrect; the first ones if there are many."""
    simulated: bool = False
    """A simulator replaced the device."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.status is not Status.PASS and not self.reason:
            raise ValueError(f"status {self.status.value} needs a reason")
        if self.status is Status.PASS and not self.figures:
            raise ValueError("PASS needs a figure")
        if self.simulated and self.kind in SPEED and self.status is not Status.NOT_RUN:
            raise ValueError("a simulator has no speed")
        return self


class CriteriaReport(Model):
    """The output file of `tritmark criteria`."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    created: str
    """UTC, ISO 8601."""
    device: str
    """Type of the device whose kernels were judged."""
    title: str
    """Its display name."""
    simulated: bool
    seed: int
    seconds: float
    environment: Environment
    machine: Machine
    load: MachineLoad
    """Load by other processes meanwhile."""
    criteria: Annotated[tuple[CriterionResult, ...], Field(min_length=1)]

    def count(self, status: Status) -> int:
        """The number of criteria with that status."""
        return sum(each.status is status for each in self.criteria)

    @property
    def headline(self) -> str:
        """7 of 10 criteria judged on cpu: 6 PASS, 1 FAIL; 3 NOT RUN."""
        passed, failed, missing = (self.count(each) for each in (Status.PASS, Status.FAIL, Status.NOT_RUN))
        where = f"a simulated {self.device}" if self.simulated else self.device
        return (
            f"{passed + failed} of {len(self.criteria)} criteria judged on {where}: {passed} PASS, {failed} FAIL; "
            f"{missing} NOT RUN"
        )
