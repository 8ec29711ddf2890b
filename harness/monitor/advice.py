"""What the sessions say about the health of the machine and the program, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tritmark.harness.monitor.ceilings import MEASURE
from tritmark.harness.monitor.compare import SessionVerdict
from tritmark.harness.monitor.counters import OTHER, UNKNOWN, SeriesKey
from tritmark.harness.monitor.data import SessionData
from tritmark.harness.monitor.rows import SeriesRow
from tritmark.harness.monitor.work import key_of
from tritmark.harness.text import units

_BUSY_CORES = 0.5
_SHORT_NS = 20_000
_LARGE_SHARE = 0.2
_LOW_SHARE = 0.5
_DRIFT_SESSIONS = 10
_DRIFT = 1.1
_OTHER_KERNEL = 1.25
_DRIFT_ALPHA = 0.001
"""Probability of a drift among the series of a report, if the order of their sessions is random."""


@dataclass(frozen=True, slots=True)
class MonitorFinding:
    """One finding."""

    what: str
    """One sentence."""
    evidence: str
    next_step: str
    """A command, or what to change; "" for none."""
    bad: bool = False
    """Whether it needs attention, as opposed to a hint."""


def health(sessions: Sequence[SessionData]) -> list[MonitorFinding]:
    """Findings about the machine and the program over these sessions."""
    found: list[MonitorFinding] = []
    samples = [each for session in sessions for each in session.samples if each.calls]
    loads = [each.other_cores for each in samples if each.other_cores is not None]
    if loads and median(loads) > _BUSY_CORES:
        text = f"median {median(loads):.1f} cores over {len(loads)} samples"
        found.append(MonitorFinding("Other processes were busy during calls.", text, "tritmark doctor", True))
    hot = sum(each.throttled or 0 for each in samples)
    if hot:
        text = f"{hot} times in {units.counted(sum(1 for each in samples if each.throttled), 'sample')}"
        found.append(
            MonitorFinding("The processor lowered its clock for its temperature.", text, "improve the cooling", True)
        )
    reasons = Counter(reason for each in samples for gpu in each.gpus.values() for reason in set(gpu.throttle))
    for reason, count in reasons.most_common():
        if reason == "applications_clocks_setting":
            continue
        text = f"{reason} in {count} of {len(samples)} samples"
        found.append(MonitorFinding("A GPU ran at lower clocks.", text, "nvidia-smi -q -d PERFORMANCE", True))
    errors: Counter[str] = Counter()
    for each in sessions:
        for one in each.series:
            errors.update(one.errors)
    if errors:
        text = ", ".join(f"{kind} {count:,} times" for kind, count in errors.most_common())
        found.append(MonitorFinding("Calls raised exceptions.", text, "see the messages in the program's log", True))
    lost = [each for each in sessions if not each.complete]
    if lost:
        text = f"{len(lost)} of {len(sessions)}; the last minute of each may be missing"
        found.append(MonitorFinding("Sessions did not end: their process was killed, or still runs.", text, ""))
    for program in sorted({each.program for each in sessions}):
        grown = [
            each.samples[-1].rss - each.samples[len(each.samples) // 2].rss
            for each in sessions
            if each.program == program and len(each.samples) >= 20
        ]
        if len(grown) >= 3 and min(grown) > 16 << 20:
            text = f"at least {units.size(min(grown))} in the second half of each of {len(grown)} sessions"
            found.append(MonitorFinding(f"The memory of {program} grew.", text, "tracemalloc shows where", True))
    return found


def advice(rows: Sequence[SeriesRow], sessions: Sequence[SessionData], ceilings: bool) -> list[MonitorFinding]:
    """Proposals, the most time first."""
    found: list[MonitorFinding] = []
    slower = [each for each in rows if each.judgement.verdict is SessionVerdict.SLOWER]
    if slower:
        what = (
            "A kernel is slower than in earlier sessions. The machine may be the cause, since sessions are not "
            "interleaved; the gate decides between two versions or commits."
        )
        found.append(MonitorFinding(what, f"{len(slower)} series, see above", "tritmark gate OLD NEW", True))
    found += _drifts(rows) + _other_kernels(rows)
    if not ceilings and rows:
        found.append(
            MonitorFinding("The percent of the ceiling is unknown.", "no Record has ceilings of this machine", MEASURE)
        )
    for row in rows:
        key = key_of(row.series.key.kernel)
        share, middle = row.share_of_time, row.series.median_ns
        if key is None or middle is None:
            continue
        shape = ",".join(row.series.key.shape.split())
        low = row.ceiling is not None and row.ceiling < _LOW_SHARE
        if share > _LARGE_SHARE and low and middle >= _SHORT_NS and ".." not in shape:
            text = f"{units.percent(share)} of the time, at {units.percent(row.ceiling)} of the ceiling"
            found.append(
                MonitorFinding(
                    f"{row.series.key.kernel} is far from the ceiling at {row.series.key.shape}.",
                    text,
                    f"tritmark tune variants {key.op} --shape {shape}",
                )
            )
        if share > _LARGE_SHARE and middle < _SHORT_NS and row.calls > 1000 and row.series.key.entry in _BINDABLE:
            text = f"{units.short(row.calls)} calls of {units.time(middle)}, {units.percent(share)} of the time"
            found.append(
                MonitorFinding(
                    "Many short calls: Python takes a part of each.", text, "QuantizedLinear.bind, or larger batches"
                )
            )
        if row.series.key.kernel.endswith("/dequantized"):
            text = f"{units.percent(share)} of the time"
            found.append(
                MonitorFinding(
                    "A layer computes with dequantized weights.", text, "pack_weights in a format with one scale", True
                )
            )
    other = sum(each.calls for each in rows if each.series.key.kernel in {OTHER, UNKNOWN})
    if other:
        found.append(MonitorFinding("Some calls are not assigned to a kernel.", f"{other:,} calls", ""))
    found += _transfers(sessions)
    return list({(each.what, each.next_step): each for each in reversed(found)}.values())[::-1]


_BINDABLE = frozenset({"QuantizedLinear"})


def _drifts(rows: Sequence[SeriesRow]) -> list[MonitorFinding]:
    """Series that became slower little by little: no session is SLOWER, since the ones before it predict it."""
    found = []
    for row in rows:
        medians = [each.median_ns for each in row.trend.points]
        third = len(medians) // 3
        if len(medians) < _DRIFT_SESSIONS or row.judgement.verdict is SessionVerdict.SLOWER:
            continue
        first, last = median(medians[:third]), median(medians[-third:])
        if last < _DRIFT * first:
            continue
        from scipy.stats import kendalltau  # takes long to import

        tau = kendalltau(range(len(medians)), medians)
        if tau.statistic > 0 and tau.pvalue < _DRIFT_ALPHA / len(rows):
            key = row.series.key
            found.append(
                MonitorFinding(
                    f"{key.kernel} became slower little by little in {row.program}, {key.entry}, {key.shape}.",
                    f"{units.time(first)} to {units.time(last)} in {len(medians)} sessions",
                    "tritmark gate OLD NEW",
                    True,
                )
            )
    return found


def _other_kernels(rows: Sequence[SeriesRow]) -> list[MonitorFinding]:
    """Calls that a slower kernel runs since some session: a new series, so no session is SLOWER."""
    same: dict[tuple[str, SeriesKey], list[SeriesRow]] = {}
    for row in rows:
        if row.trend.points:
            same.setdefault((row.program, replace(row.series.key, kernel="")), []).append(row)
    found = []
    for (program, key), some in same.items():
        *_, before, now = [None, *sorted(some, key=lambda row: row.trend.points[-1].at)]
        if before is None or before.trend.points[-1].at >= now.trend.points[0].at:
            continue
        earlier, later = (median(each.median_ns for each in row.trend.points) for row in (before, now))
        if later > _OTHER_KERNEL * earlier:
            found.append(
                MonitorFinding(
                    f"Another kernel runs {key.entry} in {program} at {key.shape}, and is slower.",
                    f"{before.series.key.kernel}, {units.time(earlier)}; in the last "
                    f"{units.counted(len(now.trend.points), 'session')} {now.series.key.kernel}, {units.time(later)}",
                    "tritmark gate OLD NEW",
                    True,
                )
            )
    return found


def _transfers(sessions: Sequence[SessionData]) -> list[MonitorFinding]:
    totals: Counter[str] = Counter()
    for each in sessions:
        for device, counts in each.devices.items():
            for name, count in counts.items():
                totals[f"{device} {name}"] += count
    found = []
    for device in sorted({name.split()[0] for name in totals}):
        moved = totals[f"{device} bytes_uploaded"] + totals[f"{device} bytes_downloaded"]
        calls = sum(
            one.calls
            for each in sessions
            for one in each.series
            if one.key.kernel.startswith(f"{device.partition(':')[0]}/")
        )
        if calls and moved / calls > 1 << 20:
            text = f"{units.size(moved / calls)} a call, {units.size(moved)} in all"
            found.append(
                MonitorFinding(
                    f"Arrays are copied to {device} and back in each call.", text, f"keep arrays on {device}"
                )
            )
        misses, hits = totals[f"{device} pool_misses"], totals[f"{device} pool_hits"]
        if misses > 100 and misses > hits:
            text = f"{misses:,} allocations were new, {hits:,} came from the pool"
            found.append(
                MonitorFinding(f"The memory pool of {device} rarely helps.", text, "use the same shapes repeatedly")
            )
    return found
