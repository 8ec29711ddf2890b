"""Measures the gain of each prefetch strategy on this machine, and chooses the fastest.

All strategies are timed interleaved at each shape, cold and hot. The fastest cold one is chosen if it beats the
built-in one by more than noise, again in a second measurement of these two alone, and is not slower hot. All calls run
in this process, since a strategy is a setting of a process and only changes this package's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

import numpy as np

from tritmark.harness import prefetched
from tritmark.harness.autotune import ties
from tritmark.harness.autotune.keep import locked
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.buffers import memory_of, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, interval
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.providers import Installed
from tritmark.harness.record import PrefetchFigure, Ratio, TunedPrefetch
from tritmark.harness.spec import Axes, Device, Prefetching, Workload
from tritmark.harness.store import write_atomically
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.sets import Sets

CONFIRMING = 0.3
"""The part of the time for the second measurement."""
_COLD_CALLS = 4
"""The least calls of a cold sample. The untimed call before it wakes the threads."""
Temperature = str
COLD, HOT = "cold", "hot"


@dataclass(slots=True)
class TimedShape:
    """Calls of one shape, timed with each strategy."""

    axes: Axes
    timed: dict[Temperature, Timed]
    ns: dict[tuple[Temperature, str], list[float]] = field(default_factory=dict)
    """Samples, round by round."""


@dataclass(slots=True)
class _Told:
    """Calls with one strategy, as a side of an alternation."""

    timed: Timed
    use: Callable[[str], None]
    strategy: str

    def sample(self) -> float:
        """Nanoseconds of a call."""
        self.use(self.strategy)
        return self.timed.sample()


def tune_prefetch(
    installed: Installed, device: Device, asked: Prefetching, *, threads: int, seconds: float, seed: int
) -> TunedPrefetch:
    """Tune within about `seconds`, and store the result."""
    rng = np.random.default_rng([seed, *asked.key.op.encode()])
    names = tuple(asked.strategies())
    try:
        trials = timed_strategies(
            installed, device, asked, names, rng, threads=threads, seconds=(1 - CONFIRMING) * seconds, seed=seed
        )
        best, note = fastest(trials, names)
        confirmed = _once_more(trials, asked, names[0], best, rng, CONFIRMING * seconds) if best else None
    finally:
        asked.use("")
    if confirmed is not None and (confirmed.too_noisy or confirmed.high >= 1 - LAYOUT_NOISE):
        best, note = "", f"in a second measurement {best} was not faster than {names[0]} by more than noise"
    found = TunedPrefetch(
        device=device.type,
        op=asked.key.op,
        identity=dict(asked.identity()),
        builtin=names[0],
        chosen=best,
        confirmed=confirmed,
        note=note,
        shapes=tuple(" ".join(f"{name}={size}" for name, size in each.items()) for each in asked.shapes),
        threads=threads,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        figures=tuple(
            PrefetchFigure(
                strategy=name, cold=over(trials, COLD, name, asked.plain), hot=over(trials, HOT, name, asked.plain)
            )
            for name in sorted(names, key=lambda name: (name != asked.plain, names.index(name)))
        ),
    )
    keep_prefetch(found)
    asked.use("")
    return found


def timed_strategies(
    installed: Installed,
    device: Device,
    asked: Prefetching,
    names: Sequence[str],
    rng: np.random.Generator,
    *,
    threads: int,
    seconds: float,
    seed: int,
) -> list[TimedShape]:
    """Time calls of each shape with these strategies interleaved, cold and hot, within about `seconds`. Afterwards the
    kernels still use the last strategy."""
    begun = monotonic()
    trials = [_trial(installed, device, asked, axes, threads, seed, rng) for axes in asked.shapes]
    left = seconds - (monotonic() - begun)
    for trial in trials:
        _sample(trial, asked, names, rng, left / len(trials))
    return trials


def over(trials: Sequence[TimedShape], temperature: Temperature, strategy: str, other: str) -> Ratio:
    """A strategy's time over another's: round by round, over all shapes."""
    logs = np.concatenate(
        [np.log(trial.ns[temperature, strategy]) - np.log(trial.ns[temperature, other]) for trial in trials]
    )
    low, high = interval(logs)
    return Ratio(
        median=float(np.exp(np.median(logs))), low=float(np.exp(low)), high=float(np.exp(high)), pairs=len(logs)
    )


def fastest(trials: Sequence[TimedShape], names: Sequence[str]) -> tuple[str, str]:
    """Returns the strategy to choose, or "", and why a faster one was left out.

    It beats the first strategy cold by more than noise and is not slower hot. The fastest is taken; of a tie, the first
    in order."""
    note = ""
    cold = {name: over(trials, COLD, name, names[0]) for name in names[1:]}
    left = {name: ratio for name, ratio in cold.items() if ratio.high < 1 - LAYOUT_NOISE and not ratio.too_noisy}
    while left:
        name, _, _ = ties.taken(left, names, lambda a, b: over(trials, COLD, a, b))
        del left[name]
        hot = over(trials, HOT, name, names[0])
        if hot.low <= 1 + LAYOUT_NOISE:
            return name, note
        note = note or f"{name} is faster cold but slower hot"
    return "", note


def keep_prefetch(found: TunedPrefetch) -> None:
    """Store the result for the op's kernels on the device, in place of an earlier one. Raises UsageError if the file is
    damaged or cannot be written."""
    with locked(prefetched.path()) as where:
        others = [
            each
            for each in prefetched.read(where)
            if (each["device"], each["op"], each["identity"].get("device"))
            != (found.device, found.op, found.identity["device"])
        ]
        write_atomically(where, prefetched.text((*others, found.model_dump(mode="json"))))


def _trial(
    installed: Installed,
    device: Device,
    asked: Prefetching,
    axes: Axes,
    threads: int,
    seed: int,
    rng: np.random.Generator,
) -> TimedShape:
    op, memory = installed.ops[asked.key.op], memory_of(device)
    variant = installed.registry.select_best(asked.key, axes)
    material = Material(op, Workload(op=op.name, axes=axes, family=op.input_families[0]), seed)
    inputs = material.encoded(asked.key.format)[0]
    sets = Sets(op, asked.key, axes, (inputs,), memory, "aligned", rotation(memory))
    launches = [variant.bind(each.inputs, each.outputs, axes, threads) for each in sets.each]
    turn = [launches[index] for index in rng.permutation(len(launches))]
    timed = {
        COLD: Timed(turn, clock_for(device, turn), warm=True),
        HOT: Timed(turn[:1], clock_for(device, turn[:1]), warm=True),
    }
    for each in timed.values():
        calibrate(each)
    timed[COLD].calls = max(_COLD_CALLS, timed[COLD].calls)
    return TimedShape(axes, timed)


def _sample(
    trial: TimedShape, asked: Prefetching, names: Sequence[str], rng: np.random.Generator, seconds: float
) -> None:
    end = monotonic() + seconds
    trial.ns = {(temperature, name): [] for temperature in trial.timed for name in names}
    while len(trial.ns[COLD, names[0]]) < LEAST_SAMPLES or monotonic() < end:
        for temperature, timed in trial.timed.items():
            for index in rng.permutation(len(names)):
                trial.ns[temperature, names[index]].append(_Told(timed, asked.use, names[index]).sample())


def _once_more(
    trials: Sequence[TimedShape], asked: Prefetching, builtin: str, best: str, rng: np.random.Generator, seconds: float
) -> Ratio:
    """The best strategy's cold time over the built-in one's, interleaved, without the others."""
    raced = []
    for trial in trials:
        enough = First(
            MinimumSamples(ENOUGH_SAMPLES, Interval(LAYOUT_NOISE)),
            MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds / len(trials))),
        )
        cold = trial.timed[COLD]
        found = alternate(_Told(cold, asked.use, builtin), _Told(cold, asked.use, best), rng, enough)
        raced.append(TimedShape(trial.axes, {}, {(COLD, builtin): [*found.a_ns], (COLD, best): [*found.b_ns]}))
    return over(raced, COLD, best, builtin)
