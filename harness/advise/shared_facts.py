"""Facts that several rules show as evidence."""

from __future__ import annotations

from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.record import Fact, Run
from tritmark.harness.text import units


def warm(evidence: Evidence) -> Fact:
    """The hot time t."""
    return Fact(name="hot time t", value=units.time(evidence.t), source="performance.hot.timing.median_ns")


def least(evidence: Evidence) -> Fact:
    """The least time R and its source."""
    source = "machine.ceilings: launch" if evidence.limit == "launch" else "performance.hot.against.fraction times t"
    return Fact(name=f"least time R ({evidence.limit})", value=units.time(evidence.R), source=source)


def noise(evidence: Evidence) -> Fact:
    """The noise e."""
    return Fact(name="noise e", value=units.percent(evidence.e), source="performance.hot: half the wider 95 % interval")


def sibling(run: Run) -> Fact:
    """The hot time of another Run."""
    assert run.performance.hot is not None
    value = f"{units.time(run.performance.hot.timing.median_ns)} ({run.kernel}, {run.workload.id})"
    return Fact(name="hot time of another Run", value=value, source="performance.hot.timing.median_ns")
