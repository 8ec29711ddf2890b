"""The gate's statistics: the effect of noise on verdicts, their time, and their error rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import expm1, inf, log1p
from typing import Any

import numpy as np
import pytest
from gate_requests import TASK
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.measuring import _measured
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.verdict import FIRST, Decision, GateLimits, decide, interval, ratio, smallest
from tritmark.harness.measure.statistics import dependence

PAIR_NS = 400_000
"""Two samples of 0.2 ms."""
COUNT = 2500
"""The number of pairs in a second."""

Noise = Callable[[np.random.Generator], NDArray[np.float64]]


class Stream:
    """Pairs from an array; each advances the clock by PAIR_NS."""

    def __init__(self, logs: NDArray[np.float64], pair_ns: int = PAIR_NS) -> None:
        self.logs, self.pair_ns, self.given = logs, pair_ns, 0

    def take(self, pairs: int) -> list[float]:
        self.given += pairs
        assert self.given <= len(self.logs), "more pairs than the time allows"
        return self.logs[self.given - pairs : self.given].tolist()  # type: ignore[no-any-return]

    def now(self) -> int:
        return self.given * self.pair_ns


def judged(logs: NDArray[np.float64], **limits: float) -> Decision:
    stream = Stream(logs)
    return decide(stream.take, GateLimits(**limits), now=stream.now)


def heavy(rng: np.random.Generator) -> NDArray[np.float64]:
    return 0.01 * rng.standard_cauchy(COUNT)


def bimodal(rng: np.random.Generator) -> NDArray[np.float64]:
    """The speed doubles or halves within a pair in one pair of five, in either half."""
    fast = np.cumsum(rng.random(2 * COUNT) < 0.1) % 2
    flips = rng.choice((-1.0, 1.0), COUNT)
    return flips * (fast[1::2] - fast[::2]) * np.log(2) + rng.normal(0, 0.01, COUNT)  # type: ignore[no-any-return]


def drifting(rng: np.random.Generator) -> NDArray[np.float64]:
    """The ratio itself drifts by 1 % and back."""
    waves = np.sin(np.arange(COUNT) * 2 * np.pi / rng.uniform(50, 400) + rng.uniform(0, 6))
    return 0.01 * waves + rng.normal(0, 0.03, COUNT)  # type: ignore[no-any-return]


def autocorrelated(rng: np.random.Generator) -> NDArray[np.float64]:
    steps = rng.normal(0, 0.01, COUNT)
    for at in range(1, COUNT):
        steps[at] += 0.7 * steps[at - 1]
    return steps


NOISES: tuple[Noise, ...] = (heavy, bimodal, drifting, autocorrelated)


@pytest.mark.parametrize("noise", NOISES)
def test_unchanged_is_never_slower(noise: Noise) -> None:
    rng = np.random.default_rng(1)
    # Code layout alone causes changes up to 0.4 %.
    said = Counter(judged(noise(rng) + log1p(change)).verdict for change in (0.0, 0.004) for _ in range(40))
    assert said[Outcome.SLOWER] == said[Outcome.FASTER] == 0


@pytest.mark.parametrize("noise", [heavy, bimodal])
def test_at_the_bands_edge_one_alarm_in_a_hundred_at_most(noise: Noise) -> None:
    """The worst of all unchanged cases, with the errors of the looks only. Seeds are fixed, so the result is
    deterministic."""
    rng = np.random.default_rng(2)
    said = Counter(judged(noise(rng) + log1p(0.01)).verdict for _ in range(100))
    assert said[Outcome.SLOWER] <= 1
    assert said[Outcome.AMBIGUOUS] > 75


@pytest.mark.parametrize(("change", "seconds"), [(0.05, 0.5), (0.02, 1.0)])
@pytest.mark.parametrize("noise", NOISES)
def test_slow_downs_are_found_in_time(noise: Noise, change: float, seconds: float) -> None:
    rng = np.random.default_rng(3)
    decisions = [judged(noise(rng) + log1p(change)) for _ in range(40)]
    assert sum(each.verdict is Outcome.SLOWER and each.seconds <= seconds for each in decisions) >= 0.95 * len(
        decisions
    )


def test_faster_mirrors_slower() -> None:
    logs = heavy(np.random.default_rng(4)) + log1p(0.05)
    slower, faster = judged(logs), judged(-logs)
    assert (slower.verdict, faster.verdict) == (Outcome.SLOWER, Outcome.FASTER)
    assert slower.pairs == faster.pairs
    assert slower.ratio.median == pytest.approx(1 / faster.ratio.median)
    assert slower.ratio.low <= slower.ratio.median <= slower.ratio.high


@pytest.mark.parametrize(
    ("change", "expected"), [(0.0099, Outcome.SAME), (0.0101, Outcome.SLOWER), (-0.0101, Outcome.FASTER)]
)
def test_nothing_inside_the_band_is_claimed(change: float, expected: Outcome) -> None:
    decision = judged(np.full(COUNT, log1p(change)))
    assert decision.verdict is expected
    assert decision.pairs == FIRST
    assert judged(np.full(COUNT, log1p(change)), dead=0.02).verdict is Outcome.SAME


def test_hopeless_noise_is_ambiguous_at_the_time_limit() -> None:
    decision = judged(np.random.default_rng(5).normal(0, 3, COUNT))
    assert decision.verdict is Outcome.AMBIGUOUS
    assert decision.seconds == pytest.approx(1, abs=0.001)
    assert decision.pairs == COUNT
    assert "1 %" in decision.reason
    assert "1 s" in decision.reason


def test_slow_calls_end_in_time_and_too_few_of_them_claim_nothing() -> None:
    stream = Stream(np.full(100, 1.0), pair_ns=200_000_000)
    decision = decide(stream.take, GateLimits(), now=stream.now)
    assert decision.verdict is Outcome.AMBIGUOUS
    assert decision.pairs == 5
    assert decision.seconds == pytest.approx(1)
    assert decision.smallest is None
    assert "too few" in decision.reason


def test_no_pair_is_begun_that_would_end_too_late() -> None:
    stream = Stream(np.full(100, 1.0), pair_ns=300_000_000)
    decision = decide(stream.take, GateLimits(), now=stream.now)
    assert decision.pairs == 3
    assert decision.seconds == pytest.approx(0.9)


def test_a_longer_time_is_used() -> None:
    stream = Stream(np.random.default_rng(6).normal(log1p(0.012), 0.05, 5 * COUNT))
    assert decide(stream.take, GateLimits(seconds=5), now=stream.now).verdict is Outcome.SLOWER
    assert stream.given > COUNT


def test_dependence_of_pairs() -> None:
    rng = np.random.default_rng(7)
    free = [dependence(rng.standard_cauchy(1000)) for _ in range(20)]
    tied = [dependence(np.repeat(rng.standard_cauchy(100), 10)) for _ in range(20)]
    assert 1 <= np.median(free) < 1.6
    assert 7 < np.median(tied) < 16
    assert dependence([1.0] * 500) == 1


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(8)
    bounds = [interval(rng.standard_cauchy(400), 0.025) for _ in range(600)]
    missed = sum(not low <= 0 <= high for low, high in bounds)
    assert missed <= 0.05 * 600
    assert interval([0.1] * 4, 0.025) == (-inf, inf)


@settings(max_examples=30)
@given(st.lists(st.floats(-1, 1), min_size=40, max_size=200), st.floats(-0.5, 0.5))
def test_intervals_are_ordered_nested_and_move_along(logs: list[float], move: float) -> None:
    narrow, wide = interval(logs, 0.025), interval(logs, 0.001)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    grown = ratio(logs)
    assert grown.low <= grown.median <= grown.high
    assert grown.pairs == len(logs)
    moved = ratio(np.asarray(logs) * 2)
    assert moved.median == pytest.approx(grown.median**2)
    assert ratio(np.asarray(logs) + move).median == pytest.approx(grown.median * np.exp(move))


@pytest.mark.parametrize("noise", [heavy, bimodal, autocorrelated])
def test_the_smallest_effect_is_seen(noise: Noise) -> None:
    rng, limits = np.random.default_rng(9), GateLimits()
    promised = np.median([smallest(noise(rng), limits, COUNT) or inf for _ in range(10)])
    assert 0.01 < promised < 0.02
    seen = [judged(noise(rng) + log1p(promised)).verdict is Outcome.SLOWER for _ in range(60)]
    assert sum(seen) >= 52  # 57 of 60, less three standard errors of so few trials


def test_what_base_differs_from_itself_by_adds_to_the_smallest_effect() -> None:
    rng, limits = np.random.default_rng(10), GateLimits()
    logs = rng.normal(0, 0.02, 1000)
    alone = smallest(logs, limits, 1000)
    assert alone is not None
    assert smallest(logs, limits, 1000, logs + log1p(0.03)) == pytest.approx(
        expm1(log1p(alone) + log1p(0.03)), abs=0.003
    )
    assert smallest(logs, limits, 1000, 3 * logs) > alone  # type: ignore[operator]
    assert smallest(logs, limits, 4000) < alone  # type: ignore[operator]
    assert smallest(logs, limits, 1000, [0.5]) == alone  # a single pair says nothing


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"seconds": inf}, {"dead": 0}, {"dead": 1}, {"false": 0}, {"false": 0.5}]
)
def test_limits_are_checked(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(limits))}.*legal"):
        GateLimits(**limits)


class Steady:
    """A kernel whose calls take `ns`, plus or minus 0.1 %."""

    clock, code, calls = "made up", "", 1

    def __init__(self, ns: float, seed: int) -> None:
        self._ns, self._rng = ns, np.random.default_rng(seed)

    def sample(self) -> float:
        return float(self._ns * (1 + 0.001 * self._rng.standard_normal()))


@pytest.mark.parametrize(
    ("head", "again", "expected"),
    [
        (1.030, 1.025, Outcome.AMBIGUOUS),
        (1.080, 1.025, Outcome.SLOWER),
        (0.920, 1.025, Outcome.FASTER),
        (0.980, 1.025, Outcome.AMBIGUOUS),
        (1.030, 1.0, Outcome.SLOWER),
    ],
)
def test_only_what_goes_beyond_what_base_differs_from_itself_by_is_claimed(
    head: float, again: float, expected: Outcome
) -> None:
    bound_kernels: Any = [Steady(1000 * times, seed) for seed, times in enumerate((1.0, head, again))]
    found = _measured(TASK, *bound_kernels, GateLimits(seconds=0.05), {})  # type: ignore[call-arg]
    assert found.outcome is expected, found.reason
    assert ("BASE against itself" in found.reason) == (again != 1.0)
