"""A session against earlier ones of the same program and machine.

The sessions ran at different times, so they cannot be interleaved, and a change may come from the machine. What limits
a claim is therefore not the spread of the calls of a session but the spread between sessions. A median is SLOWER if it
lies above the interval in which the earlier sessions predict the next one, and if neither the load, the clocks nor the
sizes of the calls explain it. Even then it is a suspicion with its evidence: `tritmark gate` interleaves two builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, fsum, log, sqrt
from statistics import fmean, median

from tritmark.harness.monitor.counters import SeriesKey
from tritmark.harness.monitor.data import Series, SessionData

LEAST_SESSIONS = 5
"""Fewer earlier sessions predict nothing."""
MOST_SESSIONS = 30
LEAST_TIMED = 20
"""A median of fewer timed calls is not compared."""
ALPHA = 0.01
"""Probability that a session has a false SLOWER or FASTER among all its series, if the logarithms of the medians of
sessions are independent and normal."""
LEAST_CHANGE = 0.05
"""Smaller changes are not reported."""
LEAST_SPREAD = 0.01
"""Spread between sessions that is assumed at least: a histogram resolves no better."""
SAME_LEVEL = 8
"""So many sessions in a row outside the prediction are a new level, which becomes the baseline."""
_OUTLIER = 3.5
"""Modified z-score above which an earlier session is left out (Iglewicz and Hoaglin)."""
_BUSIER = 0.25
"""Cores that other processes took beyond the busiest earlier session."""
_SLOWER_CLOCK = 0.97
_OTHER_SIZES = 0.05
_ALIKE = 0.97


class SessionVerdict(StrEnum):
    """How a session compares."""

    SLOWER = "SLOWER"
    """Above the prediction, and nothing that was sampled explains it."""
    FASTER = "FASTER"
    SAME = "SAME"
    """Within the prediction."""
    UNCLEAR = "UNCLEAR"
    """Above the prediction, but the machine or the calls differed."""
    NEW = "NEW"
    """Too few earlier sessions, or too few timed calls."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What may change times without a change of the kernel; None if unknown."""

    other_cores: float | None
    clock_hz: float | None
    gpu_clock_hz: float | None
    throttled: str
    """Why the clocks were lowered; "" for no reason that was sampled."""
    version: str


@dataclass(frozen=True, slots=True)
class SessionPoint:
    """One series in one session."""

    session: str
    at: float
    """Start of the session, seconds since 1970."""
    median_ns: float
    timed: int
    operations: float | None
    """Of a mean call."""
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class SessionJudgement:
    """A point against the earlier ones."""

    verdict: SessionVerdict
    why: str
    """One sentence."""
    sessions: int
    """Earlier sessions that it was compared with."""
    ratio: float | None = None
    """Its median over that of the earlier sessions."""
    low: float | None = None
    """Least ratio that they predict."""
    high: float | None = None
    """Largest ratio that they predict."""


def conditions(session: SessionData) -> Conditions:
    """The conditions of a session: medians over the samples in which there were calls, or over all if there are
    none."""
    busy = [each for each in session.samples if each.calls] or list(session.samples)
    reasons = Counter(reason for each in busy for gpu in each.gpus.values() for reason in gpu.throttle)
    # A power limit that is set, or reached in each session alike, is no event.
    named = [reason for reason, count in reasons.items() if 2 * count > len(busy) and "thermal" in reason]
    named += [reason for reason in reasons if reason in {"hw_slowdown", "hw_power_brake_slowdown"}]
    hot = sum(each.throttled or 0 for each in busy)
    if hot:
        named.append(f"the processor throttled {hot} times")
    return Conditions(
        _median(each.other_cores for each in busy),
        _median(each.clock_hz for each in busy),
        _median(gpu.clock_hz for each in busy for gpu in each.gpus.values()),
        ", ".join(dict.fromkeys(named)),
        session.version,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def point(session: SessionData, series: Series, under: Conditions) -> SessionPoint | None:
    """The point of a series; None without timed calls."""
    middle = series.median_ns
    if not middle:
        return None
    operations = series.operations / series.calls if series.operations is not None and series.calls else None
    return SessionPoint(session.id, session.started, middle, series.timed, operations, under)


def judge(new: SessionPoint, earlier: Sequence[SessionPoint], among: int = 1) -> SessionJudgement:
    """Compare a point with earlier ones. `among`: number of series of the session, over which ALPHA is divided."""
    if new.timed < LEAST_TIMED:
        return SessionJudgement(SessionVerdict.NEW, f"{new.timed} timed calls; {LEAST_TIMED} are needed", 0)
    known = [each for each in earlier if each.timed >= LEAST_TIMED][-MOST_SESSIONS:]
    kept = _without_outliers(known)
    if len(kept) < LEAST_SESSIONS:
        return SessionJudgement(
            SessionVerdict.NEW, f"{len(kept)} earlier sessions; {LEAST_SESSIONS} are needed for a comparison", len(kept)
        )
    center, half = predicted([log(each.median_ns) for each in kept], ALPHA / max(1, among))
    change = log(new.median_ns) - center
    half = max(half, log(1 + LEAST_CHANGE))
    ratio, low, high = exp(change), exp(-half), exp(half)
    within = f"{len(kept)} earlier sessions predict {_percent(low)} to {_percent(high)}"
    if abs(change) <= half:
        return SessionJudgement(SessionVerdict.SAME, f"{_percent(ratio)}; {within}", len(kept), ratio, low, high)
    if change < 0:
        return SessionJudgement(SessionVerdict.FASTER, f"{_percent(ratio)}; {within}", len(kept), ratio, low, high)
    reason = _explained(new, kept, change)
    if reason:
        return SessionJudgement(SessionVerdict.UNCLEAR, f"{_percent(ratio)}, but {reason}", len(kept), ratio, low, high)
    versions = {each.conditions.version for each in kept}
    changed = "" if new.conditions.version in versions else f"; tritmark {new.conditions.version} is new"
    return SessionJudgement(SessionVerdict.SLOWER, f"{_percent(ratio)}; {within}{changed}", len(kept), ratio, low, high)


def predicted(logs: Sequence[float], alpha: float) -> tuple[float, float]:
    """Center and half width of the interval in which the next value lies with probability 1 - alpha."""
    from scipy.special import stdtrit  # scipy.stats takes long to import, and 0.2 ms for a quantile

    count, center = len(logs), fmean(logs)
    # statistics.stdev computes in fractions, which took half the time of a large report.
    spread = max(sqrt(fsum((each - center) ** 2 for each in logs) / (count - 1)), LEAST_SPREAD)
    return center, float(stdtrit(count - 1, 1 - alpha / 2)) * spread * sqrt(1 + 1 / count)


def _without_outliers(points: list[SessionPoint]) -> list[SessionPoint]:
    if len(points) < LEAST_SESSIONS:
        return points
    logs = [log(each.median_ns) for each in points]
    middle = median(logs)
    deviation = median(abs(each - middle) for each in logs)
    scale = max(deviation / 0.6745, LEAST_SPREAD)
    return [each for each, value in zip(points, logs, strict=True) if abs(value - middle) <= _OUTLIER * scale]


def _explained(new: SessionPoint, earlier: Sequence[SessionPoint], change: float) -> str:
    """What else differed so much that it may be the cause; "" for nothing that was sampled."""
    now, before = new.conditions, [each.conditions for each in earlier]
    loads = [each.other_cores for each in before if each.other_cores is not None]
    if now.other_cores is not None and loads and now.other_cores > max(loads) + _BUSIER:
        return f"other processes took {now.other_cores:.1f} cores, earlier at most {max(loads):.1f}"
    for name, clock, clocks in (
        ("processor", now.clock_hz, [each.clock_hz for each in before if each.clock_hz]),
        ("GPU", now.gpu_clock_hz, [each.gpu_clock_hz for each in before if each.gpu_clock_hz]),
    ):
        if not clock or not clocks:
            continue
        lost = log(median(clocks) / clock)
        if clock < _SLOWER_CLOCK * min(clocks) and 2 * lost > change:
            return f"the {name} ran at {clock / 1e9:.2f} GHz, earlier at {median(clocks) / 1e9:.2f} GHz"
    if now.throttled and not any(each.throttled for each in before):
        return f"clocks were lowered: {now.throttled}"
    sizes = [each.operations for each in earlier if each.operations]
    if new.operations and sizes and abs(new.operations / median(sizes) - 1) > _OTHER_SIZES:
        return f"a mean call had {_percent(new.operations / median(sizes))} operations"
    return ""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


@dataclass(frozen=True, slots=True)
class Trend:
    """A series over its sessions, the oldest first."""

    program: str
    key: SeriesKey
    points: tuple[SessionPoint, ...]
    judgements: tuple[SessionJudgement, ...]
    """Of each point."""


class _History:
    """What the next point of a series is compared with."""

    def __init__(self) -> None:
        self.points: list[SessionPoint] = []
        self.judgements: list[SessionJudgement] = []
        self.baseline: list[SessionPoint] = []
        self.outside: list[SessionPoint] = []
        """The last points, all slower or all faster than the prediction."""
        self.slower = False
        """Whether they are slower."""
        self.recovered: list[list[SessionPoint]] = []
        """Earlier slow points in a row that were followed by one within the prediction."""

    def add(self, new: SessionPoint, among: int) -> None:
        """Judge a point, and keep it."""
        found = judge(new, self.baseline, among)
        moved = found.verdict in {SessionVerdict.SLOWER, SessionVerdict.FASTER}
        if moved:
            if self.slower is not (found.verdict is SessionVerdict.SLOWER):
                self.slower, self.outside = found.verdict is SessionVerdict.SLOWER, []
            if self.slower:
                found = self._not_again(new, found)
            self.outside.append(new)
            if len(self.outside) >= SAME_LEVEL:
                self.baseline, self.outside, self.recovered = self.outside, [], []
        elif found.verdict is not SessionVerdict.UNCLEAR and new.timed >= LEAST_TIMED:
            if self.outside and self.slower:
                self.recovered = [*self.recovered[-MOST_SESSIONS:], self.outside]
            self.outside = []
            self.baseline = [*self.baseline, new][-MOST_SESSIONS:]
        self.points.append(new)
        self.judgements.append(found)

    def _not_again(self, new: SessionPoint, found: SessionJudgement) -> SessionJudgement:
        """UNCLEAR if earlier sessions were as slow for a while and recovered, and this while is not longer."""
        alike = [each for each in self.recovered if max(one.median_ns for one in each) >= _ALIKE * new.median_ns]
        if not alike or len(self.outside) >= max(map(len, alike)):
            return found
        why = f"{found.why}; earlier sessions were as slow {len(alike)} times and recovered"
        return replace(found, verdict=SessionVerdict.UNCLEAR, why=why)


def trends(sessions: Sequence[SessionData]) -> list[Trend]:
    """Every series of sessions of one machine, the oldest first, and each session against those before it.

    A point outside the prediction does not join the baseline, so a slow-down is reported in each later session, too.
    After SAME_LEVEL of them in a row they are the baseline. What is UNCLEAR for its conditions never joins."""
    found: dict[tuple[str, SeriesKey], _History] = {}
    for session in sessions:
        under = conditions(session)
        here = [(each.key, made) for each in session.series if (made := point(session, each, under)) is not None]
        among = sum(made.timed >= LEAST_TIMED for _, made in here)
        for key, made in here:
            found.setdefault((session.program, key), _History()).add(made, among)
    return [Trend(*name, tuple(each.points), tuple(each.judgements)) for name, each in found.items()]
