"""The report of some time: what ran, how it compares, and what follows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from tritmark.harness.monitor.advice import MonitorFinding, advice, health
from tritmark.harness.monitor.ceilings import DeviceCeilings, share
from tritmark.harness.monitor.compare import SessionJudgement, SessionVerdict, Trend, conditions, trends
from tritmark.harness.monitor.data import Series, SessionData
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.rows import SeriesRow, SessionLine

VERSION = 1
"""Of the JSON."""
_BASELINE_S = 90 * 86400.0
"""Sessions of so much time before the report are its baseline."""
LIMITS = (
    "Sessions ran at different times and cannot be interleaved. SLOWER means: above what the earlier sessions of the "
    "same program and machine predict, and neither load, clocks nor sizes explain it. It is a suspicion, not a proof; "
    "tritmark gate interleaves two builds."
)


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    since: float
    until: float
    machine: str
    host: str
    sessions: tuple[SessionLine, ...]
    """The newest first."""
    rows: tuple[SeriesRow, ...]
    """The most time first."""
    health: tuple[MonitorFinding, ...]
    advice: tuple[MonitorFinding, ...]
    ceilings: Mapping[str, DeviceCeilings]
    notes: tuple[str, ...]

    @property
    def slower(self) -> list[SeriesRow]:
        """Series whose newest session is SLOWER."""
        return [each for each in self.rows if each.judgement.verdict is SessionVerdict.SLOWER]

    @property
    def headline(self) -> str:
        """One line."""
        if not self.sessions:
            return "No sessions in this time"
        from tritmark.harness.text.units import counted

        calls = sum(each.data.calls for each in self.sessions if not each.nested)
        state = f"{len(self.slower)} series SLOWER" if self.slower else "no series is slower"
        return f"{counted(len(self.sessions), 'session')}, {counted(calls, 'call')}: {state}"


def summarize(
    database: Database,
    *,
    since: float,
    until: float | None = None,
    program: str = "",
    ceilings: Mapping[str, DeviceCeilings] | None = None,
) -> Report:
    """The report of the sessions that began since then, of the machine of the newest one. Raises UsageError if the
    database cannot be read."""
    end = time.time() if until is None else until
    stored = database.sessions(since=since - _BASELINE_S, program=program)
    every = [each for each in stored if each.started <= end]
    here = [each for each in every if each.started >= since]
    machine = here[-1].machine if here else ""
    notes = [f"a damaged database was set aside: {path}" for path in database.set_aside()]
    notes += database.unreadable
    if until is None and len(stored) > len(every):
        count = len(stored) - len(every)
        notes.append(f"{count} sessions began later than now, as the clock was set back: they are not shown")
    others = [each for each in here if each.machine != machine]
    if others:
        count = len({each.machine for each in others})
        notes.append(f"{len(others)} sessions of {count} other machines or limits are not shown; they do not compare")
    mine = [each for each in every if each.machine == machine]
    shown = [each for each in mine if each.started >= since]
    outermost = _outermost(shown)
    rows = _rows(trends(_outermost_of_program(mine)), shown, outermost, ceilings or {})
    notes += _nested(shown, outermost)
    if any(each.every > 1 for each in shown):
        notes.append("at high rates one of several calls was timed, at random; all were counted")
    if any(each.series.key.asynchronous for each in rows):
        notes.append("calls marked * do not wait for the device: their times are those of the submission")
    if any(each.key.simulated for session in shown for each in session.series):
        notes.append("calls in the simulator are counted and have no time")
    slower: dict[str, int] = {}
    for row in rows:
        for point, judged in zip(row.trend.points, row.trend.judgements, strict=True):
            slower[point.session] = slower.get(point.session, 0) + (judged.verdict is SessionVerdict.SLOWER)
    return Report(
        since=since,
        until=end,
        machine=machine,
        host=shown[-1].host if shown else "",
        sessions=tuple(map(_line_of(slower, {each.id for each in outermost}), reversed(shown))),
        rows=tuple(rows),
        health=tuple(health(outermost)),
        advice=tuple(advice(rows, outermost, bool(ceilings))),
        ceilings=ceilings or {},
        notes=tuple(notes),
    )


def _outermost(sessions: Sequence[SessionData]) -> list[SessionData]:
    """The sessions that are inside no other one of them: each call of the others is counted there, too."""
    ids = {each.id for each in sessions}
    return [each for each in sessions if ids.isdisjoint(each.within)]


def _outermost_of_program(sessions: Sequence[SessionData]) -> list[SessionData]:
    """The same within each program, whose sessions are compared."""
    programs = {each.id: each.program for each in sessions}
    return [each for each in sessions if each.program not in map(programs.get, each.within)]


def _nested(shown: Sequence[SessionData], outermost: Sequence[SessionData]) -> Iterator[str]:
    """Notes about calls that several sessions have."""
    if inner := len(shown) - len(outermost):
        which = "1 session was" if inner == 1 else f"{inner} sessions were"
        yield f"{which} inside another one: totals count their calls once"
    ends: dict[int, float] = {}
    overlapping = 0
    for each in outermost:
        overlapping += each.started < ends.get(each.pid, 0.0)
        ends[each.pid] = max(each.ended, ends.get(each.pid, 0.0))
    if overlapping:
        which = "1 session" if overlapping == 1 else f"{overlapping} sessions"
        yield f"{which} began while another one of the process ran, and ended later: both have the calls between"


def _rows(
    found: Sequence[Trend],
    shown: Sequence[SessionData],
    outermost: Sequence[SessionData],
    ceilings: Mapping[str, DeviceCeilings],
) -> list[SeriesRow]:
    by_key: dict[tuple[str, Any], list[Series]] = {}
    newest: dict[tuple[str, Any], str] = {}
    for session in _outermost_of_program(shown):
        for each in session.series:
            by_key.setdefault((session.program, each.key), []).append(each)
            newest[session.program, each.key] = session.id
    total = sum(each.busy_ns or 0.0 for session in outermost for each in session.series)
    known = {(each.program, each.key): each for each in found}
    ids = {each.id for each in shown}
    rows = []
    for (program, key), some in by_key.items():
        trend = known.get((program, key), Trend(program, key, (), ()))
        inside = [number for number, each in enumerate(trend.points) if each.session in ids]
        trend = Trend(
            program,
            key,
            tuple(trend.points[number] for number in inside),
            tuple(trend.judgements[number] for number in inside),
        )
        judged = SessionJudgement(SessionVerdict.NEW, "no call was timed", 0)
        if trend.points and trend.points[-1].session == newest[program, key]:
            judged = trend.judgements[-1]
        busy = sum(each.busy_ns or 0.0 for each in some)
        rows.append(
            SeriesRow(
                program=program,
                series=some[-1],
                trend=trend,
                judgement=judged,
                calls=sum(each.calls for each in some),
                errors=sum(sum(each.errors.values()) for each in some),
                busy_ns=busy,
                share_of_time=busy / total if total else 0.0,
                ceiling=share(ceilings, some[-1]),
            )
        )
    return sorted(rows, key=lambda row: -row.busy_ns)


def _line_of(slower: Mapping[str, int], outermost: Collection[str]) -> Any:
    def made(data: SessionData) -> SessionLine:
        busy = [each for each in data.samples if each.calls] or list(data.samples)
        gpus = [gpu for each in busy for gpu in each.gpus.values()]
        under = conditions(data)
        return SessionLine(
            data=data,
            nested=data.id not in outermost,
            slower=slower.get(data.id, 0),
            own_cores=_middle([each.own_cores for each in busy]),
            other_cores=under.other_cores,
            clock_hz=under.clock_hz,
            gpu_utilization=_middle([each.utilization for each in gpus]),
            gpu_clock_hz=under.gpu_clock_hz,
            power=_middle([each.power for each in gpus]),
            throttled=under.throttled,
            rss=max((each.rss for each in data.samples), default=None),
        )

    return made


def _middle(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(median(known)) if known else None


def moment(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def as_json(report: Report) -> dict[str, Any]:
    """The report for other programs; times in nanoseconds, moments in seconds since 1970."""
    return {
        "version": VERSION,
        "headline": report.headline,
        "since": report.since,
        "until": report.until,
        "machine": report.machine,
        "host": report.host,
        "limits": LIMITS,
        "notes": list(report.notes),
        "series": [
            {
                "program": row.program,
                **asdict(row.series.key),
                "calls": row.calls,
                "errors": row.errors,
                "busy_ns": row.busy_ns,
                "share_of_time": row.share_of_time,
                "median_ns": row.series.median_ns,
                "bytes_per_second": row.series.bytes_per_second,
                "share_of_ceiling": row.ceiling,
                **{f"newest_{name}": value for name, value in asdict(row.judgement).items()},
                "points": [
                    {
                        "session": one.session,
                        "at": one.at,
                        "median_ns": one.median_ns,
                        "timed": one.timed,
                        "verdict": judged.verdict,
                        "why": judged.why,
                    }
                    for one, judged in zip(row.trend.points, row.trend.judgements, strict=True)
                ],
            }
            for row in report.rows
        ],
        "sessions": [
            {
                **{
                    name: getattr(line.data, name)
                    for name in (
                        "id",
                        "program",
                        "started",
                        "ended",
                        "complete",
                        "version",
                        "pid",
                        "every",
                        "devices",
                        "within",
                    )
                },
                "calls": line.data.calls,
                "errors": line.data.errors,
                **{
                    name: getattr(line, name)
                    for name in (
                        "nested",
                        "slower",
                        "own_cores",
                        "other_cores",
                        "clock_hz",
                        "gpu_utilization",
                        "gpu_clock_hz",
                        "power",
                        "throttled",
                        "rss",
                    )
                },
            }
            for line in report.sessions
        ],
        "health": [asdict(each) for each in report.health],
        "advice": [asdict(each) for each in report.advice],
        "ceilings": {device: asdict(each) for device, each in report.ceilings.items()},
    }
