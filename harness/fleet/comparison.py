"""Machines side by side: the fastest kernel on each workload, its percent of the ceiling, and what became slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tritmark.harness.fleet.merge import FleetColumn, MergedSets, labels
from tritmark.harness.record import Measurement, Ratio, Run, Status
from tritmark.harness.record.model import Model
from tritmark.harness.report.compare import Change, compare
from tritmark.harness.text import groups

COMPARISON_VERSION = 1
_FEWEST = 2


class FleetMachine(Model):
    """One column: a machine and a device."""

    label: str
    kind: str
    """"" for Records that no fleet made."""
    device: str
    machine: str
    """Id of the machine."""
    description: str
    """CPU and GPUs, on one line."""
    hosts: tuple[str, ...]
    tritmark: str
    python: str
    compiler: str
    packages: dict[str, str]
    records: tuple[str, ...]
    runs: int
    failed: int
    """Runs with FAIL or ERROR."""
    wins: dict[str, int]
    """For each variant, the number of rows in which it is the fastest."""
    changes: dict[str, int]
    """For each change since the earlier set, the number of figures; empty without one."""
    compared: str
    """Why nothing was compared with the earlier set; "" if it was, or there is none."""


class FleetCell(Model):
    """The fastest correct kernel of a row on one machine."""

    label: str
    variant: str = ""
    """"" if there is none; `reason` then states why."""
    ties: tuple[str, ...] = ()
    """Variants whose 95 % interval overlaps that of `variant`."""
    ns: float | None = None
    """Median time of a call."""
    low_ns: float | None = None
    high_ns: float | None = None
    temperature: str = ""
    """cold: data come from memory; hot: calls repeat the same arrays."""
    share: float | None = None
    """Of the machine's ceiling; None without one, or if it is too noisy."""
    threads: int = 0
    fastest: bool = False
    """Its interval is below those of all other machines."""
    reason: str = ""


class FleetRow(Model):
    """One key and workload on all machines."""

    op: str
    format: str
    dtype: str
    workload: str
    shape: str
    title: str
    cells: tuple[FleetCell, ...]

    @property
    def name(self) -> str:
        """Op, format and dtype; "none" is no format."""
        return " ".join(part for part in (self.op, self.format, self.dtype) if part != "none")


class FleetChange(Model):
    """A figure that is faster or slower than in the earlier set, beyond the noise."""

    label: str
    kernel: str
    workload: str
    threads: int
    temperature: str
    change: Change
    speed: Ratio
    """Speed now over the speed before, each as a share of the ceiling."""


class FleetComparison(Model):
    """The whole comparison."""

    version: int = COMPARISON_VERSION
    sets: tuple[str, ...]
    against: tuple[str, ...] = ()
    """The earlier set; empty without one."""
    machines: tuple[FleetMachine, ...]
    rows: tuple[FleetRow, ...]
    changes: tuple[FleetChange, ...] = ()
    failures: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    repeated: int = 0

    @property
    def slower(self) -> tuple[FleetChange, ...]:
        """The regressions."""
        return tuple(each for each in self.changes if each.change is Change.SLOWER)


def compared(now: MergedSets, before: MergedSets | None = None) -> FleetComparison:
    """The machines of `now` side by side, and each against itself in `before`."""
    names = labels(now.columns)
    rows = tuple(_rows(now.columns, names))
    changes: list[FleetChange] = []
    machines = []
    for label, column in zip(names, now.columns, strict=True):
        counts, why, found = _changes(column, label, before)
        changes += found
        machines.append(_machine(column, label, rows, counts, why))
    worst = {Change.SLOWER: 0, Change.FASTER: 1}
    return FleetComparison(
        sets=now.names,
        against=before.names if before else (),
        machines=tuple(machines),
        rows=rows,
        changes=tuple(sorted(changes, key=lambda each: (worst[each.change], each.speed.median))),
        failures=tuple(
            f"{label}: {groups.verdict(run).value.upper()} {run.kernel}, {groups.place(run.workload)}: {_why(run)}"
            for label, column in zip(names, now.columns, strict=True)
            for run in column.record.own
            if not run.passed
        ),
        not_run=now.not_run,
        left_out=(*now.left_out, *(f"earlier set: {text}" for text in (before.left_out if before else ()))),
        repeated=now.repeated,
    )


_Key = tuple[str, str, str, str]
"""Op, format, dtype, workload."""


def _key(run: Run) -> _Key:
    return run.op, run.format, run.dtype, run.workload.id


def _rows(columns: Sequence[FleetColumn], names: Sequence[str]) -> Iterator[FleetRow]:
    """A row for each key and workload that was timed on a machine."""
    every = [_by_key(column.record.own) for column in columns]
    best = [_by_key(groups.right(column.record)) for column in columns]
    for key in dict.fromkeys(key for of in every for key, runs in of.items() if any(map(_timed, runs))):
        cells = [
            _cell(name, of.get(key, []), right.get(key, []))
            for name, of, right in zip(names, every, best, strict=True)
        ]  # fmt: skip
        workload = next(of[key][0].workload for of in every if key in of)
        yield FleetRow(
            op=key[0],
            format=key[1],
            dtype=key[2],
            workload=key[3],
            shape=groups.shape(workload),
            title=workload.title,
            cells=tuple(_marked(cells)),
        )


def _by_key(runs: Sequence[Run]) -> dict[_Key, list[Run]]:
    found: dict[_Key, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    return found


def _timed(run: Run) -> bool:
    return _footing(run) is not None


def _footing(run: Run) -> Measurement | None:
    return run.performance.cold or run.performance.hot


def _cell(label: str, every: Sequence[Run], right: Sequence[Run]) -> FleetCell:
    if not right:
        return FleetCell(label=label, reason=_none(every))
    run = min(right, key=groups.median_ns)
    footing = _footing(run)
    assert footing is not None
    timing = footing.timing
    ties = [
        each.variant
        for each in right
        if each.variant != run.variant
        and (other := _footing(each)) is not None
        and other.timing.low_ns <= timing.high_ns
    ]
    return FleetCell(
        label=label,
        variant=run.variant,
        ties=tuple(dict.fromkeys(ties)),
        ns=timing.median_ns,
        low_ns=timing.low_ns,
        high_ns=timing.high_ns,
        temperature="cold" if run.performance.cold else "hot",
        share=groups.part(footing),
        threads=run.threads,
    )


def _none(every: Sequence[Run]) -> str:
    """Why a machine has no fastest kernel in a row."""
    if not every:
        return "not judged here"
    judged = [run for run in every if run.accuracy.status is not Status.NOT_RUN]
    if not judged:
        return every[0].accuracy.reason
    if all(run.accuracy.failed for run in judged):
        return "no kernel is correct"
    if any(map(groups.doubted, judged)):
        return "a guard doubts the times"
    if any(map(_timed, judged)):
        return "too noisy"
    return next((run.performance.reason for run in judged if run.performance.reason), "not timed")


def _marked(cells: Sequence[FleetCell]) -> Iterator[FleetCell]:
    """The cells, with the fastest machine marked, if its interval is below all others. Cold and hot times do not
    compare."""
    timed = sorted((cell for cell in cells if cell.ns is not None), key=lambda cell: cell.ns or 0)
    first = timed[0] if len(timed) >= _FEWEST and len({cell.temperature for cell in timed}) == 1 else None
    clear = first is not None and all((first.high_ns or 0) < (cell.low_ns or 0) for cell in timed[1:])
    for cell in cells:
        yield cell.model_copy(update={"fastest": True}) if clear and cell is first else cell


def _machine(
    column: FleetColumn, label: str, rows: Sequence[FleetRow], changes: dict[str, int], why: str
) -> FleetMachine:
    from tritmark.harness.report.machine import one_line

    here = column.record.environment
    won = Counter(cell.variant for row in rows for cell in row.cells if cell.label == label and cell.variant)
    return FleetMachine(
        label=label,
        kind=column.kind,
        device=column.device,
        machine=column.record.machine.id,
        description=one_line(column.record),
        hosts=column.hosts,
        tritmark=here.tritmark,
        python=here.python,
        compiler=here.compiler,
        packages=here.packages,
        records=column.records,
        runs=len(column.record.runs),
        failed=sum(not run.passed for run in column.record.own),
        wins=dict(won.most_common()),
        changes=changes,
        compared=why,
    )


def _changes(
    column: FleetColumn, label: str, before: MergedSets | None
) -> tuple[dict[str, int], str, list[FleetChange]]:
    """The number of figures with each change, why there are none, and those that are faster or slower."""
    if before is None:
        return {}, "", []
    same = [each for each in before.columns if each.place == column.place]
    same.sort(key=lambda each: each.kind != column.kind)
    if not same:
        return {}, f"machine {column.place[0]} is not in the earlier set", []
    found = compare(column.record, same[0].record)
    if not found.pairs:
        return {}, found.refused or "no figure is in both sets", []
    counts = {change.value: number for change in Change if (number := len(found.having(change)))}
    return (
        counts,
        "",
        [
            FleetChange(
                label=label,
                kernel=pair.run.kernel,
                workload=groups.place(pair.run.workload),
                threads=pair.run.threads,
                temperature=pair.name,
                change=pair.change,
                speed=pair.ratio,
            )
            for pair in (*found.having(Change.SLOWER), *found.having(Change.FASTER))
        ],
    )


def _why(run: Run) -> str:
    found = (run.accuracy, run.performance, run.memory, run.cross)
    return next((verdict.reason for verdict in found if verdict.failed), "")
