"""Rows of a report."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.monitor.compare import SessionJudgement, Trend
from tritmark.harness.monitor.data import Series, SessionData


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One series over the time of the report."""

    program: str
    series: Series
    """In its newest session."""
    trend: Trend
    """Over all sessions of the report."""
    judgement: SessionJudgement
    """Of the newest session."""
    calls: int
    errors: int
    busy_ns: float
    share_of_time: float
    """Of the time of all calls."""
    ceiling: float | None
    """Share of the ceiling, see DeviceCeilings."""


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One session."""

    data: SessionData
    nested: bool
    """Whether another session of the report has its calls, too. Totals leave it out."""
    slower: int
    """Series that are SLOWER."""
    own_cores: float | None
    other_cores: float | None
    clock_hz: float | None
    gpu_utilization: float | None
    gpu_clock_hz: float | None
    power: float | None
    throttled: str
    rss: int | None
    """The most."""
