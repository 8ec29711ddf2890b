"""Sessions against earlier ones: a planted slow-down is found, and sessions of equal speed stay silent."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_sessions import drawn, samples, series, session, week

from tritmark.harness.monitor.compare import (
    ALPHA,
    LEAST_SESSIONS,
    LEAST_SPREAD,
    SAME_LEVEL,
    SessionJudgement,
    SessionVerdict,
    predicted,
    trends,
)
from tritmark.harness.monitor.data import SessionData

BASE = 180_000.0


def newest(sessions: list[SessionData]) -> SessionJudgement:
    (trend,) = trends(sessions)
    return trend.judgements[-1]


def plus(sessions: list[SessionData], median_ns: float, **how: object) -> list[SessionData]:
    """One more session."""
    number = len(sessions)
    return [*sessions, session(number, [series(median_ns, seed=number)], **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_down_of_30_percent_is_found(seed: int) -> None:
    assert newest(plus(drawn(12, seed=seed), 1.3 * BASE)).verdict is SessionVerdict.SLOWER


def test_equal_sessions_stay_silent() -> None:
    """50 series of 40 sessions: 35 judgements of each. With independent normal logarithms a share of ALPHA / 2 is
    expected to be SLOWER, which is 9; the outliers that are left out make it a little more."""
    found = [each.verdict for seed in range(50) for each in trends(drawn(40, seed=seed))[0].judgements]
    judged = [each for each in found if each is not SessionVerdict.NEW]
    assert len(judged) > 0.98 * 50 * (40 - LEAST_SESSIONS)
    assert judged.count(SessionVerdict.SLOWER) < 2 * ALPHA * len(judged)
    assert judged.count(SessionVerdict.SAME) > 0.95 * len(judged)


@given(st.floats(0.001, 0.1), st.integers(5, 30))
def test_the_prediction_is_that_of_student(spread: float, count: int) -> None:
    logs = [log(BASE) + (spread if number % 2 else -spread) for number in range(count)]
    center, half = predicted(logs, 0.01)
    assert abs(center - log(BASE)) <= spread / count + 1e-12
    assert half > 2.5 * max(0.01, spread)


@given(st.lists(st.floats(5, 25), min_size=5, max_size=30), st.floats(1e-4, 0.1))
def test_the_half_width_is_that_of_the_sample_deviation(logs: list[float], alpha: float) -> None:
    from scipy.stats import t

    wanted = t.ppf(1 - alpha / 2, len(logs) - 1) * max(stdev(logs), LEAST_SPREAD) * sqrt(1 + 1 / len(logs))
    center, half = predicted(logs, alpha)
    assert center == pytest.approx(fmean(logs), rel=1e-12)
    assert half == pytest.approx(wanted, rel=1e-9)


def test_the_first_sessions_are_new() -> None:
    found = trends(drawn(LEAST_SESSIONS + 1))[0].judgements
    assert [each.verdict for each in found] == [SessionVerdict.NEW] * LEAST_SESSIONS + [SessionVerdict.SAME]


def test_few_timed_calls_claim_nothing() -> None:
    few = session(12, [series(3 * BASE, calls=19)])
    assert newest([*drawn(12), few]).verdict is SessionVerdict.NEW


def test_a_faster_session() -> None:
    assert newest(plus(drawn(12), BASE / 1.3)).verdict is SessionVerdict.FASTER


def test_a_small_change_is_not_reported_even_if_sessions_hardly_scatter() -> None:
    assert newest(plus(drawn(30, spread=0.0), 1.04 * BASE)).verdict is SessionVerdict.SAME


def test_a_wide_spread_between_sessions_hides_what_it_can_explain() -> None:
    assert newest(plus(drawn(12, spread=0.2), 1.3 * BASE)).verdict is SessionVerdict.SAME


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (samples(other_cores=4.0), "other processes took 4.0 cores"),
        (samples(clock_hz=2.4e9), "processor ran at 2.40 GHz"),
        (samples(throttled=3), "throttled 3 times"),
        (samples(gpu=("hw_thermal_slowdown",)), "hw_thermal_slowdown"),
        (samples(gpu=("hw_slowdown",)), "hw_slowdown"),
    ],
)
def test_what_the_machine_explains_is_unclear(seen: object, words: str) -> None:
    found = newest(plus(drawn(12), 1.3 * BASE, seen=seen))
    assert found.verdict is SessionVerdict.UNCLEAR
    assert words in found.why


@pytest.mark.parametrize(
    "seen",
    [
        samples(other_cores=0.3),  # hardly busier
        samples(clock_hz=3.1e9),  # explains 3 of 30 percent
        samples(gpu=("sw_power_cap",)),  # the GPU's limit, which is no event
        (),  # nothing was sampled
    ],
)
def test_what_the_machine_does_not_explain_is_slower(seen: object) -> None:
    assert newest(plus(drawn(12), 1.3 * BASE, seen=seen)).verdict is SessionVerdict.SLOWER


def test_larger_calls_of_a_shape_class_are_no_slow_down() -> None:
    larger = session(12, [series(1.3 * BASE, operations=round(1.3 * 2 * 2560 * 2560))])
    found = newest([*drawn(12), larger])
    assert found.verdict is SessionVerdict.UNCLEAR
    assert "operations" in found.why


def test_a_slow_down_that_stays_is_reported_until_it_is_the_new_level() -> None:
    sessions = drawn(12)
    for _ in range(SAME_LEVEL + 3):
        sessions = plus(sessions, 1.3 * BASE)
    found = [each.verdict for each in trends(sessions)[0].judgements][12:]
    assert found == [SessionVerdict.SLOWER] * SAME_LEVEL + [SessionVerdict.SAME] * 3


def test_a_session_that_recovers_is_reported_once() -> None:
    sessions = drawn(12)
    for factor in (1.5, 1, 1, 1.5, 1, 1.5, 1.5):
        sessions = plus(sessions, factor * BASE)
    found = [each.verdict for each in trends(sessions)[0].judgements][12:]
    assert found == [
        SessionVerdict.SLOWER,
        SessionVerdict.SAME,
        SessionVerdict.SAME,
        SessionVerdict.UNCLEAR,  # as slow as one that recovered
        SessionVerdict.SAME,
        SessionVerdict.UNCLEAR,
        SessionVerdict.SLOWER,  # for longer than that
    ]


def test_one_slow_session_in_the_baseline_hides_nothing() -> None:
    sessions = [session(0, [series(3 * BASE)]), *(replace(each, id=f"{each.id}-") for each in drawn(12)[1:])]
    assert newest(plus(sessions, 1.3 * BASE)).verdict is SessionVerdict.SLOWER


def test_programs_kernels_shapes_and_thread_counts_are_compared_apart() -> None:
    sessions = drawn(12)
    one = series(2 * BASE)
    for key in (
        replace(one.key, kernel=one.key.kernel + "_vnni"),
        replace(one.key, shape="M=2 N=2560 K=2560"),
        replace(one.key, threads=1),
        replace(one.key, entry="ternary_matmul"),
    ):
        found = trends([*sessions, session(12, [replace(one, key=key)])])
        assert len(found) == 2
        assert found[-1].judgements[-1].verdict is SessionVerdict.NEW
    assert len(trends([*sessions, session(12, [one], program="notebook")])) == 2


def test_a_new_version_is_named() -> None:
    found = newest(plus(drawn(12), 1.3 * BASE, version="9.9.9"))
    assert "tritmark 9.9.9 is new" in found.why


def test_the_made_up_week() -> None:
    found = trends(week())
    slower = {each.key.shape: sum(one.verdict is SessionVerdict.SLOWER for one in each.judgements) for each in found}
    assert slower["M=1 N=2560 K=6912"] >= 6
    assert sum(slower.values()) - slower["M=1 N=2560 K=6912"] <= 1
    unclear = {point.session for each in found for point, one in zip(each.points, each.judgements, strict=True)
               if one.verdict is SessionVerdict.UNCLEAR}  # fmt: skip
    assert "session-0045" in unclear
