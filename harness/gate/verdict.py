"""Did it get slower? The statistics of the gate: pairs are asked for until one can be sure, or the time is up.

The statistic is the median of the log ratios of adjacent pairs (`harness/measure/alternate.py` says why). Its interval
comes from order statistics: nothing is assumed of the distribution but that half of the pairs lie below the median. Two
things break such an interval, and are allowed for:

- *Pairs depend on each other.* Whole stretches of them can be off together. Sums of the signs (above or below the
  median) over blocks of 2, 4, 8, ... pairs would vary as the block's length if pairs were independent; by how much they
  vary more, at the worst length that still has 16 blocks, so many times fewer pairs are counted.
- *Whoever looks again and again is misled sooner or later.* Looks come at each half more of pairs, and at the end of
  the time. From the pace of the first pairs it is known how many there can be; the last has half of the share of false
  alarms that is allowed in all, and those before it share the other half (Bonferroni, which overstates, because looks
  share their pairs).

SLOWER is said where the interval lies above the dead band, FASTER below it, SAME where it lies inside; what is inside
the band is never claimed, because the layout of unchanged code alone moves a kernel by 0.1 to 0.4 %.

On made-up noise (`suites/gate/simulated.py`, 500 trials of each, pairs of 0.4 ms): noise that is normal, Cauchy, of a
speed that doubles within pairs, of a width that jumps twentyfold, with a middle that jumps by 1 %, or autocorrelated by
0.5 gave no SLOWER where the truth was up to 0.4 %, and at most 1 % of them where it was the whole dead band (4 % for
the middle that jumps); all of 5 % were found within 0.04 s (95th percentile) and all of 2 % within 0.2 s. Where 20 or
more pairs hang together 100 pairs cannot show it: autocorrelated by 0.9, SLOWER in 1 % at a truth of 0 and 10 % at the
edge; by 0.97, in 6 % and 27 %. On two cores of a busy virtual machine the dependence of 72 launches was 1 to 2.1, once
4.8. Against that, and against what differs from launch to launch, alarms are confirmed in fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, expm1, inf, log1p, sqrt
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.result import Outcome
from tritmark.harness.measure.statistics import LEAST_SAMPLES, binomial_quantile, dependence, normal_quantile
from tritmark.harness.record import Ratio

Pairs = Callable[[int], Sequence[float]]
"""Takes so many more adjacent pairs and returns log(head/base) of each."""

FIRST = 100
"""Pairs before the first look: the dependence between pairs cannot be told from fewer."""
_GROWTH = 1.5
_LAST = 0.5
"""The last look's part of the false alarms: it has the most pairs, so it is where a small slow-down can still be
told from none."""
POWER = 0.95
"""How surely an effect of `Decision.smallest` is seen."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What may be spent, and what is let pass."""

    seconds: float = 1.0
    """Time for the pairs; what takes longer is AMBIGUOUS."""
    dead: float = 0.01
    """Changes up to this fraction are not claimed."""
    false: float = 0.01
    """Share of false SLOWER at most, and of false FASTER, over all looks together."""

    def __post_init__(self) -> None:
        for name, value, legal in (
            ("seconds", self.seconds, 0 < self.seconds < inf),
            ("dead", self.dead, 0 < self.dead < 1),
            ("false", self.false, 0 < self.false < 0.5),
        ):
            if not legal:
                bound = {
                    "seconds": "a time above 0",
                    "dead": "a fraction above 0 and below 1",
                    "false": "a share above 0 and below 0.5",
                }[name]
                raise UsageError(f"the gate's {name} is {value:g}; legal: {bound}")


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one benchmark in one launch."""

    verdict: Outcome
    """SLOWER, FASTER, SAME or AMBIGUOUS."""
    ratio: Ratio
    """HEAD's time over BASE's with its 95 % interval, dependence allowed for (that of the looks is wider)."""
    smallest: float | None
    """The smallest slow-down, as a fraction, that 95 of 100 launches would have seen within the time; None: too few
    pairs to say."""
    seconds: float
    pairs: int
    reason: str
    bounds: tuple[float, float] = (-inf, inf)
    """What the verdict rests on: of the log of the ratio, every look allowed for."""

    def beyond(self, off: float, limits: GateLimits) -> bool:
        """Whether SLOWER or FASTER would stand if the dead band were wider by `off`, a log of a ratio."""
        band = log1p(limits.dead) + off
        return self.bounds[0] > band or self.bounds[1] < -band


def interval(logs: npt.ArrayLike, tail: float) -> tuple[float, float]:
    """Bounds of the median, each of which misses it in at most the share `tail` of cases; infinite where the pairs
    are too few."""
    ordered = np.sort(np.asarray(logs, np.float64))
    counted = max(1, int(len(ordered) / dependence(logs)))
    rank = binomial_quantile(tail, counted)
    if rank < 1:
        return -inf, inf
    at = max(1, rank * len(ordered) // counted)
    return float(ordered[at - 1]), float(ordered[-at])


def ratio(logs: npt.ArrayLike) -> Ratio:
    """The median of the pairs' ratios and its 95 % interval; below six pairs, their range."""
    values = np.asarray(logs, np.float64)
    middle = float(np.median(values))
    low, high = interval(values, 0.025)
    if low == -inf:
        low, high = float(values.min()), float(values.max())
    return Ratio(median=exp(middle), low=exp(min(low, middle)), high=exp(max(high, middle)), pairs=len(values))


def smallest(logs: npt.ArrayLike, limits: GateLimits, pairs: int, noise: npt.ArrayLike = ()) -> float | None:
    """The smallest slow-down, as a fraction, that `pairs` pairs as noisy as `logs` and `noise` (A/A) show with
    probability POWER.

    The noisier of the two counts, and what A/A is off by adds to it. None where there are too few pairs to tell.
    """
    tail = limits.false * _LAST
    errors, off = [_error(logs, pairs)], 0.0
    if len(np.asarray(noise)) >= LEAST_SAMPLES:
        errors.append(_error(noise, pairs))
        off = abs(float(np.median(np.asarray(noise, np.float64))))
    if max(errors) == inf:
        return None
    return float(expm1(log1p(limits.dead) + off + (normal_quantile(POWER) - normal_quantile(tail)) * max(errors)))


def _error(logs: npt.ArrayLike, pairs: int) -> float:
    """Standard error of the median of `pairs` such pairs."""
    low, high = interval(logs, 0.025)
    return (high - low) / (2 * -normal_quantile(0.025)) * sqrt(len(np.asarray(logs)) / pairs)


def decide(
    pairs: Pairs, limits: GateLimits, noise: Sequence[float] = (), now: Callable[[], int] = perf_counter_ns
) -> Decision:
    """Ask for pairs until the verdict is sure, or `limits.seconds` have gone by. `noise`: log ratios of BASE against
    itself.

    `now` is a clock in nanoseconds. The time is kept to within one pair as long as all pairs take about as long.
    """
    start = now()
    end = start + limits.seconds * 1e9
    logs = list(pairs(1))
    band = log1p(limits.dead)
    late = _fill(pairs, logs, FIRST, end, start, now)
    # With no look before it, the last one has all there is.
    early = 0 if late else _early(len(logs), (now() - start) / 1e9, limits.seconds)
    share, last = limits.false * (1 - _LAST) / max(early, 1), limits.false * (_LAST if early else 1)
    while True:
        low, high = interval(logs, last if late else share)
        verdict = _verdict(low, high, band)
        if verdict is not Outcome.AMBIGUOUS or late:
            break
        early -= 1
        late = _fill(pairs, logs, int(len(logs) * _GROWTH) if early else inf, end, start, now)
    seconds = (now() - start) / 1e9
    affordable = max(len(logs), int(len(logs) * limits.seconds / seconds)) if seconds > 0 else len(logs)
    seen = smallest(logs, limits, affordable, noise)
    return Decision(
        verdict, ratio(logs), seen, seconds, len(logs), _reason(verdict, (low, high), limits, seconds), (low, high)
    )


def _early(pairs: int, seconds: float, limit: float) -> int:
    """How many looks come before the one at the end of the time, if so many pairs took so many seconds; the first is
    at these."""
    affordable, looks = pairs * limit / seconds, 1
    while (pairs := int(pairs * _GROWTH)) < affordable:
        looks += 1
    return looks


def _fill(pairs: Pairs, logs: list[float], target: float, end: float, start: int, now: Callable[[], int]) -> bool:
    """Take pairs until there are `target`, never more at once than half of the time left allows; whether the time ran
    out before.

    No pair is begun that would be done after the end.
    """
    while len(logs) < target:
        time = now()
        pace = max(1.0, (time - start) / len(logs))
        if time + pace > end:
            return True
        logs += pairs(int(min(target - len(logs), max(1, (end - time) / pace / 2))))
    return False


def _verdict(low: float, high: float, band: float) -> Outcome:
    if low > band:
        return Outcome.SLOWER
    if high < -band:
        return Outcome.FASTER
    return Outcome.SAME if -band < low and high < band else Outcome.AMBIGUOUS


def _reason(verdict: Outcome, bounds: tuple[float, float], limits: GateLimits, seconds: float) -> str:
    """What the verdict rests on, in a sentence."""
    if bounds[0] == -inf:
        return f"too few pairs in {seconds:.2g} s for any interval"
    shown = " to ".join(f"{100 * expm1(bound):+.2f} %" for bound in bounds)
    if verdict is Outcome.AMBIGUOUS:
        return (
            f"after {seconds:.2g} s the change may be anything from {shown}, and the dead band is "
            f"{100 * limits.dead:g} %"
        )
    where = {Outcome.SLOWER: "above", Outcome.FASTER: "below", Outcome.SAME: "within"}[verdict]
    return f"the change, {shown} with every look allowed for, lies {where} the dead band of {100 * limits.dead:g} %"
