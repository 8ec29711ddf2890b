"""The table of the results of `power.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from tritmark.harness.gate.measuring import longer
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.verdict import GateLimits, decide

_GATE = "gate"
_TARGETS = {0.05: 0.5, 0.02: 1.0}
"""Seconds in which 95 % of the trials of a slow-down should be found; longer for long calls, by the gate's factor."""


def share(hits: int, of: int) -> str:
    """12 of 300, 4.0 % (2.3 to 6.9): with Wilson's 95 % interval."""
    if not of:
        return "–"
    wilson = binomtest(hits, of).proportion_ci(method="wilson")
    return f"{hits} of {of}, {100 * hits / of:.1f} % ({100 * wilson.low:.1f} to {100 * wilson.high:.1f})"


def show(found: dict[str, Any]) -> None:
    """Print the slow-downs, how often each method raised an alarm, and how soon the gate did."""
    console = Console(width=None if Console().is_terminal else 180, highlight=False)
    extras = sorted({trial["extra"] for trial in found["trials"]})
    console.print(_loads(found, extras))
    console.print(_alarms(found["trials"], extras))
    console.print(_gate(found, extras))
    edge, of = at_the_edge(found)
    console.print(
        f"A/A samples moved to the edge of the dead band, which is the hardest case: SLOWER in {share(edge, of)}"
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column)
    return table


def _loads(found: dict[str, Any], extras: Sequence[float]) -> Table:
    table = _table(
        "Workloads",
        "workload",
        "call",
        *(f"true slow-down at {100 * extra:g} %" for extra in extras),
        "A/A medians of launches",
    )
    for name, load in found["loads"].items():
        medians = [100 * np.median(logs) for logs in found["noise"][name]["aa"]] or [0.0]
        spread = f"{min(medians):+.2f} % to {max(medians):+.2f} %"
        true = (f"{100 * each:.2f} %" for each in load["true"][: len(extras)])
        table.add_row(f"{name}: {load['title']}", f"{load['call_ns'] / 1e3:.1f} µs", *true, spread)
    return table


def _alarms(trials: list[dict[str, Any]], extras: Sequence[float]) -> Table:
    """How often each method calls HEAD slower."""
    table = _table(
        '\nAlarms, "slower" (95 % interval)',
        "way",
        *(f"{100 * extra:g} % slower" if extra else "unchanged" for extra in extras),
    )
    for way in (_GATE, *trials[0]["others"]):
        cells = [_alarm_share([trial for trial in trials if trial["extra"] == extra], way) for extra in extras]
        table.add_row(way, *cells)
    return table


def _alarm_share(trials: list[dict[str, Any]], way: str) -> str:
    return share(sum(_slower(trial) if way == _GATE else trial["others"][way] for trial in trials), len(trials))


def _slower(trial: dict[str, Any]) -> bool:
    return bool(trial["verdict"] == Outcome.SLOWER)


def _gate(found: dict[str, Any], extras: Sequence[float]) -> Table:
    """The gate in detail, for each workload and slow-down."""
    columns = (
        "verdicts",
        "found in time",
        "seconds, median",
        "95th percentile",
        "detectable, median",
        "confirmed by fresh processes",
    )
    table = _table("\nThe gate", "workload", "slow-down", *columns)
    calls = {name: load["call_ns"] for name, load in found["loads"].items()}
    for name in (*calls, "all"):
        for extra in extras:
            cell = [trial for trial in found["trials"] if name in {trial["load"], "all"} and trial["extra"] == extra]
            if not cell:
                continue
            said = [f"{sum(trial['verdict'] == each for trial in cell)} {each.value}" for each in Outcome]
            seconds = [trial["seconds"] for trial in cell]
            limit = (
                longer(GateLimits(_TARGETS[extra]), calls.get(name, min(calls.values()))).seconds
                if extra in _TARGETS
                else None
            )
            in_time = sum(_slower(trial) and trial["seconds"] <= limit for trial in cell) if limit else 0
            confirmed = [set(trial["confirmed"]) == {Outcome.SLOWER} for trial in cell if "confirmed" in trial]
            could = [trial["smallest"] for trial in cell if trial["smallest"] is not None]
            table.add_row(
                name,
                f"{100 * extra:g} %",
                ", ".join(each for each in said if not each.startswith("0 ")),
                f"in {limit:g} s: {share(in_time, len(cell))}" if limit else "–",
                f"{np.median(seconds):.3f}",
                f"{np.quantile(seconds, 0.95):.3f}",
                f"{100 * np.median(could):.2f} %" if could else "–",
                f"{sum(confirmed)} of {len(confirmed)} alarms" if confirmed else "–",
            )
    return table


def at_the_edge(found: dict[str, Any]) -> tuple[int, int]:
    """How many A/A trials are called SLOWER if each pair's ratio is increased by the whole dead band, and the number of
    trials."""
    limits = GateLimits(found["seconds"])
    trials = [np.asarray(logs) + log1p(limits.dead) for load in found["noise"].values() for logs in load["aa"]]
    said = [
        decide(stored.take, limits, now=stored.now).verdict
        for stored in (Stored(logs, limits.seconds) for logs in trials)
    ]
    return said.count(Outcome.SLOWER), len(said)


class Stored:
    """Replays stored pairs; its clock ends with the last one."""

    def __init__(self, logs: NDArray[np.float64], seconds: float) -> None:
        self._logs, self._seconds, self._given = logs, seconds, 0

    def take(self, pairs: int) -> list[float]:
        self._given += pairs
        return self._logs[self._given - pairs : self._given].tolist()  # type: ignore[no-any-return]

    def now(self) -> int:
        return ceil(self._given / len(self._logs) * self._seconds * 1e9)
