"""The clock for a launch: the device's native one, or Python's if only Python can call the launch."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from tritmark.harness.errors import UsageError
from tritmark.harness.spec import ArrayChange, Clock, Device, Launch


class _Row:
    """Launches in the order of their calls."""

    __slots__ = ("order", "rest", "rounds")

    def __init__(self, launches: Sequence[Launch], first: int, calls: int) -> None:
        self.order = [launches[(first + call) % len(launches)] for call in range(min(calls, len(launches)))]
        self.rounds, rest = divmod(calls, len(self.order) or 1)
        self.rest = self.order[:rest]


def _timed(row: _Row) -> int:
    order, rounds, rest = row.order, row.rounds, row.rest
    start = perf_counter_ns()
    for _ in range(rounds):
        for launch in order:
            launch.run()
    for launch in rest:
        launch.run()
    return perf_counter_ns() - start


class PythonClock:
    """Times launches from Python, including the cost of the Python call."""

    name = "Python loop"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`. Returns their total ns."""
        return _timed(_Row(launches, first, calls))

    def sample_around(
        self,
        launches: Sequence[Launch],
        first: int,
        calls: int,
        before: int,
        changes: Sequence[ArrayChange],
        *,
        warm: int = 0,
    ) -> int:
        """See ChangingClock. Each change is a line of Python between the calls."""
        rows = [
            _Row(launches, first, warm),
            _Row(launches, first + warm, before),
            _Row(launches, first + warm + before, calls - before),
        ]
        copies = [(change.to, change.source) for change in changes]
        _timed(rows[0])
        taken = _timed(rows[1])
        for to, source in copies:
            to[...] = source
        return taken + _timed(rows[2])


def clock_for(device: Device, launches: Sequence[Launch]) -> Clock:
    """The device's clock if every launch has a native call, otherwise Python's. Raises UsageError if the device has no
    clock."""
    native = all(launch.pointer is not None for launch in launches)
    return own_clock(device) if native else PythonClock()


def own_clock(device: Device) -> Clock:
    """The device's clock. Raises UsageError if it has none."""
    if device.clock is None:
        raise UsageError(
            f"device {device.type!r} brings no clock, so nothing on it can be timed; legal: a Device with `clock`"
        )
    return device.clock()
