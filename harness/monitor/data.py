"""What is kept of a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tritmark.harness.monitor.counters import SeriesKey
from tritmark.harness.monitor.histogram import Histogram, quantile, total
from tritmark.harness.monitor.machine_samples import Sample


@dataclass(frozen=True, slots=True)
class Series:
    """The calls of one session with one key."""

    key: SeriesKey
    calls: int
    """That returned; each is counted."""
    total_ns: int
    """The estimated mean time of a call, times the number of timed calls."""
    histogram: Histogram
    """Of the timed calls."""
    errors: dict[str, int]
    """Class of the exception to number of calls."""
    nbytes: int | None
    """Least traffic of all calls; None if the op is not known."""
    operations: int | None
    """Of all calls."""

    @property
    def timed(self) -> int:
        """Number of timed calls."""
        return total(self.histogram)

    @property
    def median_ns(self) -> float | None:
        """Median time of a call; None if none was timed."""
        return quantile(self.histogram, 0.5)

    @property
    def busy_ns(self) -> float | None:
        """Estimated time of all calls."""
        return self.total_ns / self.timed * self.calls if self.timed else None

    @property
    def bytes_per_second(self) -> float | None:
        """Least traffic of a mean call over the median time; None for calls that do not wait for the device."""
        if self.nbytes is None or self.key.asynchronous or not self.median_ns or not self.calls:
            return None
        return self.nbytes / self.calls / self.median_ns * 1e9


@dataclass(frozen=True, slots=True)
class SessionData:
    """One session."""

    id: str
    program: str
    started: float
    """Seconds since 1970."""
    ended: float
    """The same; of the last save, if the program did not end the session."""
    complete: bool
    """Whether the program ended it."""
    machine: str
    """See machine_samples.machine_id."""
    host: str
    """Name and processor, for people."""
    version: str
    """Of tritmark."""
    pid: int
    every: int
    """Largest number of calls of which one was timed."""
    series: tuple[Series, ...]
    samples: tuple[Sample, ...] = ()
    devices: dict[str, dict[str, int]] = field(default_factory=dict)
    """What devices counted in this session, and what they held at its end."""
    within: tuple[str, ...] = ()
    """Ids of the sessions of the process that ran from before its start to after its end. They have its calls, too."""

    @property
    def calls(self) -> int:
        """Calls that returned."""
        return sum(each.calls for each in self.series)

    @property
    def errors(self) -> int:
        """Calls that raised."""
        return sum(sum(each.errors.values()) for each in self.series)


def by_time(series: Iterable[Series]) -> tuple[Series, ...]:
    """The series that took most of the time first."""
    return tuple(sorted(series, key=lambda each: (-(each.busy_ns or 0), each.key)))
