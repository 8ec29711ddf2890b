"""Finds the device that computes a public function with arrays in host memory the fastest: whole calls from Python,
with all copies, interleaved with those on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import numpy as np

from tritmark.harness.autotune.keep import keep
from tritmark.harness.autotune.tune import CONFIRMING_S, SCREENING_S, untimed
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.clocks import PythonClock
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio
from tritmark.harness.registry import fewest
from tritmark.harness.spec import Arrays, Axes, Op, PortableCall, Workload
from tritmark.harness.tuned import Choice
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.ceiling import LAYOUT_NOISE

AUTO = "auto"
"""The name of a device that is chosen for each call."""


@dataclass(slots=True, kw_only=True)
class MeasuredDevice:
    """The result for a function."""

    call: PortableCall
    ratios: dict[str, Ratio] = field(default_factory=dict)
    """The time on each other device over the CPU's, with the most rows of the class."""
    times_ns: dict[str, float] = field(default_factory=dict)
    """Median time of a call on each device, with the most rows of the class."""
    chosen: str = ""
    """The device that is kept; "" if none is."""
    why: dict[str, str] = field(default_factory=dict)
    """By device that is not chosen."""
    failed: set[str] = field(default_factory=set)
    """Devices whose calls raise an error, or whose outputs are not those of the CPU."""
    note: str = ""
    """Why nothing is kept."""


def measure_devices(
    installed: Installed, op: Op, axes: Axes, *, threads: int | None, seconds: float, seed: int
) -> list[MeasuredDevice]:
    """Measure each public function of an op whose device may be chosen, and store the choices."""
    calls = [call for each in installed.providers.values() for call in each.portable(op.name, axes, threads)]
    found = []
    for each in calls:
        result = _Measuring(installed, op, each, seed, monotonic() + seconds).run()
        found.append(result)
        if result.chosen:
            ratio = result.ratios.get(result.chosen)
            choice = Choice(
                variant=each.place,
                axes=dict(each.axes),
                identity=dict(each.identity),
                instance=result.chosen,
                builtin=each.devices[0],
                ratio=(1.0, 1.0, 1.0) if ratio is None else (ratio.median, ratio.low, ratio.high),
                created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                times_ns=result.times_ns,
            )
            keep(each.place, each.axes, choice.identity, choice)
    return found


class _Called:
    """A public call as a launch."""

    pointer = None
    bad = -1
    threads_used = 0
    ran = ""

    def __init__(self, call: Callable[[], Sequence[Any]]) -> None:
        self._call = call
        self.runs = 0

    def run(self) -> None:
        self._call()
        self.runs += 1


class _Measuring:
    """One function."""

    def __init__(self, installed: Installed, op: Op, call: PortableCall, seed: int, end: float) -> None:
        self._devices, self._op, self._call = installed.registry.devices, op, call
        self._rng, self._seed, self._end = np.random.default_rng(seed), seed, end
        self._most = {axis: size for axis, size in call.axes.items() if axis != "threads"}
        self._found = MeasuredDevice(call=call)

    def run(self) -> MeasuredDevice:
        found, call = self._found, self._call
        host, *others = call.devices
        timed = []
        for name in others:
            why = untimed(self._devices[name])
            if why:
                found.why[name] = why
            else:
                timed.append(name)
        if not timed:
            found.note = "; ".join(found.why.values()) or "no other device has a kernel for the call"
            return found
        least = fewest(self._most)
        for name in timed:
            if self._end <= monotonic():
                found.note = "the time ended before every device was timed"
                return found
            ratio = self._race(host, name, self._most, keeps=True)
            if ratio is None:
                continue
            found.ratios[name] = ratio
            if ratio.too_noisy and ratio.low < 1:
                found.note = f"too noisy to choose: {name}; repeat on a quiet machine"
                return found
            if ratio.high >= 1 - LAYOUT_NOISE:
                found.why[name] = "not faster than the CPU beyond noise"
            elif least != self._most:
                fewer = self._race(host, name, least)
                if fewer is None or fewer.low > 1 + LAYOUT_NOISE:
                    found.why[name] = "slower than the CPU with the fewest rows of the class"
        quicker = [name for name in found.ratios if name not in found.why and name not in found.failed]
        if found.ratios:
            found.chosen = min(quicker, key=lambda name: found.ratios[name].median, default=host)
        else:
            found.note = "no other device computes the call"
        return found

    def _race(self, host: str, other: str, axes: Axes, *, keeps: bool = False) -> Ratio | None:
        """The time of calls on a device over those on the CPU, interleaved; None if they fail."""
        family = self._op.input_families[0]
        inputs: Arrays = Material(self._op, Workload(op=self._op.name, axes=axes, family=family), self._seed).logical[0]
        try:
            calls = [self._call.prepare(name, inputs) for name in (host, other)]
            results = [[np.array(each, copy=True) for each in call()] for call in calls]
        except Exception as why:
            self._found.failed.add(other)
            self._found.why[other] = f"{type(why).__name__}: {why}"
            return None
        if not all(np.array_equal(mine, theirs) for mine, theirs in zip(*results, strict=True)):
            self._found.failed.add(other)
            self._found.why[other] = "its outputs are not those of the CPU"
            return None
        sides = [Timed([_Called(call)], PythonClock(), warm=True) for call in calls]
        for side in sides:
            calibrate(side)
        seconds = min(CONFIRMING_S, max(SCREENING_S, self._end - monotonic()))
        enough = First(
            MinimumSamples(ENOUGH_SAMPLES, Interval(LAYOUT_NOISE)), MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds))
        )
        raced = alternate(sides[0], sides[1], self._rng, enough)
        if keeps:
            self._found.times_ns |= {host: median(raced.a_ns), other: median(raced.b_ns)}
        return raced.ratio()
