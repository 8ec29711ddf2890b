"""Which clock times a launch: the device's native one, or Python's where only Python can call it."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Clock, Device, Launch


class PythonClock:
    """Times launches through Python, the call's own cost included."""

    name = "Python loop"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds for all of them."""
        order = [launches[(first + call) % len(launches)] for call in range(min(calls, len(launches)))]
        rounds, rest = divmod(calls, len(order))
        start = perf_counter_ns()
        for _ in range(rounds):
            for launch in order:
                launch.run()
        for launch in order[:rest]:
            launch.run()
        return perf_counter_ns() - start


def clock_for(device: Device, launches: Sequence[Launch]) -> Clock:
    """The device's clock if every launch has a native call, or else Python's. Raises UsageError where the device has
    none."""
    native = all(launch.pointer is not None for launch in launches)
    return own_clock(device) if native else PythonClock()


def own_clock(device: Device) -> Clock:
    """The device's clock. Raises UsageError where it has none."""
    if device.clock is None:
        raise UsageError(
            f"device {device.type!r} brings no clock, so nothing on it can be timed; legal: a Device with `clock`"
        )
    return device.clock()
