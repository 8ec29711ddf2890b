"""A suggested optimization and its predicted gain."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tritmark.harness.record.model import Model


class Fact(Model):
    """One piece of evidence."""

    name: str
    value: str
    """Formatted for display, with its unit."""
    source: str
    """A field of the Run, or a tool."""


class Gain(Model):
    """Predicted range of the old time over the new one."""

    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"gain from {self.low} to {self.high}; legal: 1 <= low <= high")
        return self


class Proposal(Model):
    """The proposal of one rule for one Run."""

    rule: str
    """Name of the rule; `tritmark advise --explain` takes it."""
    run: str
    """Id of the Run."""
    kernel: str
    workload: str
    title: str
    evidence: tuple[Fact, ...]
    gain: Gain
    ceiling: float
    """Largest speed-up that the ceilings of the machine allow. The gain is below it."""
    edit: str
    """The change to make."""
    reproduce: str
    """The command that measures the evidence."""
    verify: str
    """The command that measures the effect of the change."""
