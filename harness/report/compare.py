"""This Record against an earlier one of the same machine.

The two were not taken by turns, so a machine that was slower on one of the days would look like a slower kernel. Each
was taken by turns with the machine's own probe, though: what is compared is the part of the ceiling that was reached,
from which the day's speed drops out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median, quantiles
from typing import Any

from tritmark.harness.record import HOST, Measurement, Ratio, Record, Run, Status
from tritmark.harness.report import chart
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import groups, units
from tritmark.harness.text.visible import label

_MOST_ROWS = 60
_MOST_TABLE = 200
_FEWEST = 2
BAND = 0.02
"""Changes up to this part of 1 are taken for noise: identical code that was timed by turns raised alarms within it
and none beyond, see measure/alternate.py. How far identical code differs from session to session was not measured;
the intervals, quotients of the ends of two 95 % intervals, are wide for that, and the page names `tritmark gate` for a
verdict."""


class Change(StrEnum):
    """How a kernel's speed changed."""

    SLOWER = "slower"
    """The whole interval lies below the band."""
    FASTER = "faster"
    """The whole interval lies above it."""
    SAME = "same"
    """The whole interval lies within twice the band."""
    UNSURE = "unsure"
    """The interval is too wide to say."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One Run now and before, at one temperature."""

    run: Run
    name: str
    """cold or hot."""
    now: Measurement
    before: Measurement
    ratio: Ratio
    """How many times as fast it is now, the speed of the day taken out."""
    change: Change


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """Two Records side by side; `refused` says why they are not compared, and there are no pairs then."""

    refused: str
    pairs: tuple[Pair, ...] = ()
    only_now: int = 0
    only_before: int = 0
    other: int = 0
    """Runs that are in both and were measured in ways that do not compare."""

    def having(self, change: Change) -> list[Pair]:
        """The pairs that changed so."""
        return [pair for pair in self.pairs if pair.change is change]


def widths(record: Record) -> list[float]:
    """Half the width of each figure's 95 % interval, as a part of the figure."""
    runs = groups.sound(record)
    # What was too noisy to say does not tell the noise of the rest, unless there is no rest.
    runs = [run for run in runs if run.performance.status is Status.PASS] or runs
    footings = [footing for run in runs for footing in (run.performance.cold, run.performance.hot) if footing]
    fractions = [footing.against.fraction for footing in footings]
    return sorted((each.high - each.low) / 2 / each.median for each in fractions if each.median > 0)


def noise(record: Record) -> tuple[float, float] | None:
    """The noise of this Record's figures: the median of `widths`, and what nine in ten lie under. None where fewer
    than two were taken."""
    found = widths(record)
    return (median(found), quantiles(found, n=10, method="inclusive")[-1]) if len(found) >= _FEWEST else None


def compare(now: Record, before: Record) -> RecordComparison:
    """Compare what both Records measured: the same kernel, workload and number of threads, against the same ceiling."""
    if now.machine.id != before.machine.id:
        return RecordComparison(
            f"the baseline was measured on another machine ({before.machine.cpu}, id {before.machine.id}; here "
            f"{now.machine.cpu}, id {now.machine.id}), and times of two machines do not compare: measure both on one"
        )
    old = {run.place: run for run in groups.sound(before)}
    new = {run.place: run for run in groups.sound(now)}
    found: list[tuple[Run, str, Measurement, Measurement, Ratio]] = []
    other = 0
    for key, run in new.items():
        if key not in old:
            continue
        both = [pair for pair in (_pair(run, old[key], name) for name in ("cold", "hot")) if pair is not None]
        found += both
        other += not both
    pairs = tuple(Pair(*each, _change(each[-1])) for each in found)
    return RecordComparison("", pairs, len(new.keys() - old.keys()), len(old.keys() - new.keys()), other)


def _device(run: Run) -> str:
    return run.receipt.uuid if run.device != HOST and run.receipt is not None else ""


def _pair(run: Run, old: Run, name: str) -> tuple[Run, str, Measurement, Measurement, Ratio] | None:
    now, before = getattr(run.performance, name), getattr(old.performance, name)
    if now is None or before is None or _device(run) != _device(old):
        return None
    new, past = now.against, before.against
    # Another ceiling, or other work, and the parts of it would be parts of different things.
    if (new.ceiling, new.unit, new.work) != (past.ceiling, past.unit, past.work) or min(
        new.fraction.low, past.fraction.low
    ) <= 0:
        return None
    low, high = new.fraction.low / past.fraction.high, new.fraction.high / past.fraction.low
    ratio = Ratio(
        median=new.fraction.median / past.fraction.median,
        low=low,
        high=high,
        pairs=min(new.fraction.pairs, past.fraction.pairs),
    )
    return run, name, now, before, ratio


def _change(ratio: Ratio) -> Change:
    if ratio.high < 1 - BAND:
        return Change.SLOWER
    if ratio.low > 1 + BAND:
        return Change.FASTER
    return Change.SAME if ratio.low >= 1 - 2 * BAND and ratio.high <= 1 + 2 * BAND else Change.UNSURE


_KINDS = {Change.SLOWER: "below", Change.FASTER: "above", Change.SAME: "across", Change.UNSURE: "across"}


def _beside(record: Record, given: PageContext) -> dict[str, Any] | None:
    if given.baseline is None:
        return None
    found = compare(record, given.baseline)
    worst = {Change.SLOWER: 0, Change.FASTER: 1, Change.UNSURE: 2, Change.SAME: 3}
    ordered = sorted(found.pairs, key=lambda pair: (worst[pair.change], pair.ratio.median))
    drawn = [pair for pair in ordered if not pair.ratio.too_noisy][:_MOST_ROWS]
    entries = [
        chart.ForestEntry(
            pair.change.value,
            f"{label(pair.run.variant, 18)}, {pair.name}",
            pair.ratio,
            f"{pair.run.kernel}, {groups.place(pair.run.workload)}: {units.times(pair.ratio)}",
            _KINDS[pair.change],
        )
        for pair in drawn
    ]
    title = f"Speed against the baseline of {units.counted(len(drawn), 'figure')}; the table has the same figures"
    return {
        "found": found,
        "baseline": given.baseline,
        "band": BAND,
        "counts": [(change, len(found.having(change))) for change in Change],
        "plot": chart.forest(entries, title) if entries else None,
        "pairs": ordered[:_MOST_TABLE],
        "more": max(0, len(ordered) - _MOST_TABLE),
        "drawn": len(drawn),
    }


SECTION = Section("baseline", "Against the baseline", "compare.html", beside=_beside)
