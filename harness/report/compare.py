"""Compare a Record with an earlier one of the same machine.

The two were not interleaved, so a slower day of the machine would look like a slower kernel. Each was interleaved with
a probe of the machine. The fractions of the ceiling are compared, which cancels the speed of the day.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from tritmark.harness.record import HOST, Measurement, Ratio, Record, Run, Status
from tritmark.harness.report import chart
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import groups, units
from tritmark.harness.text.visible import label

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 60
_MOST_TABLE = 200
_FEWEST = 2
BAND = 0.02
"""Relative change that counts as noise: interleaved identical code differed by less (measure/alternate.py).

The difference of identical code between sessions was not measured. The intervals here, quotients of the ends of two
95 % intervals, are wide for that reason, and the page refers to `tritmark gate` for a verdict."""


class Change(StrEnum):
    """Change of a kernel's speed."""

    SLOWER = "slower"
    """The whole interval is below the band."""
    FASTER = "faster"
    """The whole interval is above the band."""
    SAME = "same"
    """The whole interval is within twice the band."""
    UNSURE = "unsure"
    """The interval is too wide to decide, or one of the figures is too noisy."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One Run now and before, at one temperature."""

    run: Run
    name: str
    """cold or hot."""
    now: Measurement
    before: Measurement
    ratio: Ratio
    """Speed now over the speed before, relative to the probes."""
    change: Change


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """Two Records side by side. If they are not compared, `refused` states why, and there are no pairs."""

    refused: str
    pairs: tuple[Pair, ...] = ()
    only_now: int = 0
    only_before: int = 0
    other: int = 0
    """Runs that are in both and were measured in different ways."""

    def having(self, change: Change) -> list[Pair]:
        """The pairs with this change."""
        return [pair for pair in self.pairs if pair.change is change]


def counts(found: RecordComparison) -> str:
    """The number of figures with each change, such as "3 slower, 120 same"."""
    numbers = ((len(found.having(change)), change) for change in Change)
    return ", ".join(f"{number:,} {change.value}" for number, change in numbers if number)


def summary(found: RecordComparison, baseline: Record) -> str:
    """The comparison as text, such as "3 slower, 120 same, compared with Record ..."."""
    record = f"Record {baseline.id} of {baseline.created[:10]}"
    if not found.pairs:
        return f"not compared with {record}: {found.refused or 'no Run was measured in both'}"
    return f"{counts(found)}, compared with {record}"


def widths(record: Record) -> list[float]:
    """Half the width of each figure's 95 % interval, as a share of the figure."""
    runs = groups.sound(record)
    # AMBIGUOUS figures do not represent the noise of the others, unless there are no others.
    runs = [run for run in runs if run.performance.status is Status.PASS] or runs
    footings = [footing for run in runs for footing in (run.performance.cold, run.performance.hot) if footing]
    fractions = [footing.against.fraction for footing in footings]
    return sorted((each.high - each.low) / 2 / each.median for each in fractions if each.median > 0)


def noise(record: Record) -> tuple[float, float] | None:
    """The noise of this Record: the median and the 90th percentile of `widths`. None for fewer than two figures."""
    found = widths(record)
    return (median(found), quantiles(found, n=10, method="inclusive")[-1]) if len(found) >= _FEWEST else None


def compare(now: Record, before: Record) -> RecordComparison:
    """Compare the Runs of both Records with equal kernel, workload, thread count and ceiling."""
    if now.machine.id != before.machine.id:
        return RecordComparison(
            f"the baseline is from another machine ({before.machine.cpu}, id {before.machine.id}; this one: "
            f"{now.machine.cpu}, id {now.machine.id}); times compare on one machine only: measure both on the same one"
        )
    import numpy as np

    new, old = _figures(now), _figures(before)
    both = new.merge(old, on=["place", "temperature", *_EQUAL], suffixes=("", "_before"))
    both = both[both[["low", "low_before"]].min(axis=1) > 0]
    both["ratio"] = both["median"] / both["median_before"]
    # Quotients of the ends: wider than the interval of a ratio, see BAND.
    both["ratio_low"] = both["low"] / both["high_before"]
    both["ratio_high"] = both["high"] / both["low_before"]
    both["change"] = np.select(
        [
            both["too_noisy"] | both["too_noisy_before"],
            both["ratio_high"] < 1 - BAND,
            both["ratio_low"] > 1 + BAND,
            (both["ratio_low"] >= 1 - 2 * BAND) & (both["ratio_high"] <= 1 + 2 * BAND),
        ],
        [Change.UNSURE, Change.SLOWER, Change.FASTER, Change.SAME],
        default=Change.UNSURE,
    )
    pairs = tuple(
        Pair(
            row.run,
            row.temperature,
            row.measurement,
            row.measurement_before,
            Ratio(median=row.ratio, low=row.ratio_low, high=row.ratio_high, pairs=min(row.samples, row.samples_before)),
            Change(row.change),
        )
        for row in both.itertuples()
    )
    places_now, places_before = (set(found["place"]) for found in (new, old))
    shared = places_now & places_before
    return RecordComparison(
        "",
        pairs,
        len(places_now - shared),
        len(places_before - shared),
        len(shared - set(both["place"])),
    )


_EQUAL = ["ceiling", "unit", "work", "device"]
"""Columns that must be equal: fractions of other ceilings, of other work or on another GPU do not compare."""
_COLUMNS = ["place", "temperature", *_EQUAL, "run", "measurement", "median", "low", "high", "samples", "too_noisy"]


def _figures(record: Record) -> pd.DataFrame:
    """A row for each figure of the Record's sound Runs."""
    import pandas as pd

    rows = []
    for run in groups.sound(record):
        device = run.receipt.uuid if run.device != HOST and run.receipt is not None else ""
        for temperature in ("cold", "hot"):
            measurement: Measurement | None = getattr(run.performance, temperature)
            if measurement is None:
                continue
            beside = measurement.against
            part = beside.fraction
            equal = beside.ceiling, beside.unit, beside.work, device
            figures = part.median, part.low, part.high, part.pairs, measurement.too_noisy
            rows.append((run.place, temperature, *equal, run, measurement, *figures))
    return pd.DataFrame(rows, columns=_COLUMNS).drop_duplicates(["place", "temperature", *_EQUAL], keep="last")


def change_of(ratio: Ratio) -> Change:
    """The change that the interval of a ratio of speeds shows."""
    if ratio.too_noisy:
        return Change.UNSURE
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
