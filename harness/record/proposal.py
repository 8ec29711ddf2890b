"""What could be changed next, and what that should bring."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tritmark.harness.record.model import Model


class Fact(Model):
    """One piece of evidence."""

    name: str
    value: str
    """For people, with its unit."""
    source: str
    """Where it comes from: a field of the Run, or a tool."""


class Gain(Model):
    """How many times as fast the kernel should be afterwards: the old time over the new one."""

    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"a gain from {self.low} to {self.high}; legal: 1 <= low <= high")
        return self


class Proposal(Model):
    """One rule's advice for one Run."""

    rule: str
    """Name of the rule, as `tritmark advise --explain` takes it."""
    run: str
    """Id of the Run."""
    kernel: str
    workload: str
    title: str
    evidence: tuple[Fact, ...]
    gain: Gain
    ceiling: float
    """How many times as fast the machine's ceilings allow at most; the gain lies below it."""
    edit: str
    """What to change."""
    reproduce: str
    """The command that measures what the evidence says."""
    verify: str
    """The command that measures what the change brought."""
