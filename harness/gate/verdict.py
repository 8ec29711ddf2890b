"""The statistics of the gate: take pairs until the verdict is certain, or the time is over.

The statistic is the median of the log ratios of adjacent pairs (see `harness/measure/alternate.py`). Its interval comes
from order statistics and assumes only that half of the pairs lie below the median. Two corrections apply:

- *Dependent pairs.* Consecutive pairs can share an error. If pairs were independent, the variance of the sums of signs
  (above or below the median) over blocks of 2, 4, 8, ... pairs would grow as the block length. The excess, at the worst
  length with 16 or more blocks, divides the number of pairs counted.
- *Repeated tests.* A test, called a look, comes each time the number of pairs has grown by half, and at the end. The
  pace of the first pairs gives the number of looks. The last look gets half of the admitted share of false alarms, and
  the earlier looks share the other half. This Bonferroni correction is conservative, because looks share pairs.

SLOWER: the interval lies above the dead band. FASTER: below it. SAME: inside it. A change inside the band is never
claimed, because the code layout alone changes the time of an unchanged kernel by 0.1 to 0.4 %.

Results on simulated noise (`suites/gate/simulated.py`, 500 trials of each, pairs of 0.4 ms). The noise was normal,
Cauchy, with a speed that doubles within pairs, with a width that jumps 20x, with a median that jumps by 1 %, or with an
autocorrelation of 0.5:

- No SLOWER for true changes up to 0.4 %.
- SLOWER in at most 1 % of trials for a true change at the edge of the dead band (4 % for the jumping median).
- All changes of 5 % are detected within 0.04 s (95th percentile), and all of 2 % within 0.2 s.

100 pairs do not show a dependence over 20 or more pairs. An autocorrelation of 0.9 gives SLOWER in 1 % of trials
without a change and in 10 % at the edge; 0.97 gives 6 % and 27 %. On two cores of a busy virtual machine, the
dependence of 72 launches was 1 to 2.1, and once 4.8. Fresh processes confirm alarms for this reason, and because
launches differ.
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
"""Takes the given number of further adjacent pairs and returns log(head/base) of each."""

FIRST = 100
"""Pairs before the first look: fewer do not show the dependence between pairs."""
_GROWTH = 1.5
_LAST = 0.5
"""The last look's share of the false alarms: it has the most pairs, so it detects the smallest slow-downs."""
POWER = 0.95
"""The probability with which a slow-down of `Decision.smallest` is detected."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Time budget, dead band and share of false alarms. Raises UsageError for a value that is out of range."""

    seconds: float = 1.0
    """Time for the pairs; a benchmark without a verdict by then is AMBIGUOUS."""
    dead: float = 0.01
    """Changes up to this fraction are not claimed."""
    false: float = 0.01
    """Largest share of false SLOWER, and of false FASTER, over all looks together."""

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
    """The decision on one benchmark in one launch."""

    verdict: Outcome
    """SLOWER, FASTER, SAME or AMBIGUOUS."""
    ratio: Ratio
    """HEAD's time over BASE's with its 95 % interval, corrected for dependence; `bounds` are wider."""
    smallest: float | None
    """The smallest slow-down, as a fraction, that 95 % of launches detect within the time; None: too few pairs."""
    seconds: float
    pairs: int
    reason: str
    bounds: tuple[float, float] = (-inf, inf)
    """The interval of the log ratio that decides the verdict, corrected for all looks."""

    def beyond(self, off: float, limits: GateLimits) -> bool:
        """Whether SLOWER or FASTER would remain if the dead band were wider by `off`, a log ratio."""
        band = log1p(limits.dead) + off
        return self.bounds[0] > band or self.bounds[1] < -band


def interval(logs: npt.ArrayLike, tail: float) -> tuple[float, float]:
    """Bounds of the median of log ratios. Each misses it in at most the share `tail` of cases; infinite if the pairs
    are too few."""
    ordered = np.sort(np.asarray(logs, np.float64))
    counted = max(1, int(len(ordered) / dependence(logs)))
    rank = binomial_quantile(tail, counted)
    if rank < 1:
        return -inf, inf
    at = max(1, rank * len(ordered) // counted)
    return float(ordered[at - 1]), float(ordered[-at])


def ratio(logs: npt.ArrayLike) -> Ratio:
    """The median of the pairs' ratios and its 95 % interval; for fewer than six pairs, their range."""
    values = np.asarray(logs, np.float64)
    middle = float(np.median(values))
    low, high = interval(values, 0.025)
    if low == -inf:
        low, high = float(values.min()), float(values.max())
    return Ratio(median=exp(middle), low=exp(min(low, middle)), high=exp(max(high, middle)), pairs=len(values))


def smallest(logs: npt.ArrayLike, limits: GateLimits, pairs: int, noise: npt.ArrayLike = ()) -> float | None:
    """The smallest slow-down, as a fraction, that `pairs` pairs as noisy as `logs` and `noise` (A/A) detect with
    probability POWER.

    The noisier of the two counts, and the bias of A/A is added. None if there are too few pairs.
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
    """Standard error of the median of `pairs` pairs as noisy as `logs`."""
    low, high = interval(logs, 0.025)
    return (high - low) / (2 * -normal_quantile(0.025)) * sqrt(len(np.asarray(logs)) / pairs)


def decide(
    pairs: Pairs, limits: GateLimits, noise: Sequence[float] = (), now: Callable[[], int] = perf_counter_ns
) -> Decision:
    """Take pairs until the verdict is certain, or `limits.seconds` are over. `noise`: log ratios of BASE with itself.

    `now` is a clock in nanoseconds. The time limit holds to within one pair if all pairs take about the same time.
    """
    start = now()
    end = start + limits.seconds * 1e9
    logs = list(pairs(1))
    band = log1p(limits.dead)
    late = _fill(pairs, logs, FIRST, end, start, now)
    # Without earlier looks, the last look gets the whole share of false alarms.
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
    """The number of looks before the last one, if `pairs` pairs took `seconds`; the first look is at these pairs."""
    affordable, looks = pairs * limit / seconds, 1
    while (pairs := int(pairs * _GROWTH)) < affordable:
        looks += 1
    return looks


def _fill(pairs: Pairs, logs: list[float], target: float, end: float, start: int, now: Callable[[], int]) -> bool:
    """Take pairs until there are `target`. Returns whether the time ran out before.

    One request takes at most half of the remaining time, and no pair begins that would end too late.
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
    """The evidence for the verdict in a sentence."""
    if bounds[0] == -inf:
        return f"too few pairs in {seconds:.2g} s for an interval"
    shown = " to ".join(f"{100 * expm1(bound):+.2f} %" for bound in bounds)
    if verdict is Outcome.AMBIGUOUS:
        return (
            f"after {seconds:.2g} s the interval of the change, {shown}, includes an edge of the dead band of "
            f"{100 * limits.dead:g} %"
        )
    where = {Outcome.SLOWER: "above", Outcome.FASTER: "below", Outcome.SAME: "within"}[verdict]
    return f"the interval of the change, {shown}, lies {where} the dead band of {100 * limits.dead:g} %"
