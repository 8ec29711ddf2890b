"""`tritmark check`: a user's kernel against the best built-in one, on the same workloads, in all four dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tritmark.harness.errors import AmbiguousKernelError, NoCompatibleKernelError, UsageError
from tritmark.harness.listings import plain_table
from tritmark.harness.record import Record, Run, Status, Verdict
from tritmark.harness.report import groups, units
from tritmark.harness.report.text import visible
from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.suite import Suite

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

SUITE = "check"
"""What the suite of such a Record is called."""
CLOSER = 5
"""Times as many drawn cases as in a run of the suite."""
DIMENSIONS = ("accuracy", "performance", "memory", "cross")

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.AMBIGUOUS: "yellow", Status.NOT_RUN: "dim"}
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked: the candidate's variants, what they are compared with, and on what."""

    mine: tuple[Variant, ...]
    rivals: tuple[Variant, ...]
    suite: Suite
    left_out: int
    """Workloads that are there to be measured, left out where a simulator has no speed."""

    @property
    def ids(self) -> frozenset[str]:
        """Of all variants that run."""
        return frozenset(variant.id for variant in (*self.mine, *self.rivals))


def planned(installed: Installed, mine: Sequence[Variant], suite: Suite, op: str = "*", device: str = "*") -> Plan:
    """Raises UsageError where the candidate has nothing for that op or device, or the suite nothing for its ops."""
    from fnmatch import fnmatchcase

    chosen = tuple(each for each in mine if fnmatchcase(each.key.op, op) and fnmatchcase(each.key.device, device))
    if not chosen:
        there = ", ".join(f"{each.key.op} on {each.key.device}" for each in mine)
        raise UsageError(f"--op {op!r} and --device {device!r} leave nothing of the file; there are: {there}")
    ops = {variant.key.op for variant in chosen}
    selected = [each for each in suite.selected if each.workload.op in ops]
    if not selected:
        raise UsageError(f"suite {suite.name} has no workloads of {', '.join(sorted(ops))}; legal: a suite that has, such as quick")
    simulated = all(installed.registry.devices[each.key.device].simulated() for each in chosen)
    judged = [each for each in selected if not (simulated and each.workload.measure)] or selected
    # One kernel alone can be looked at more closely than all of them.
    closer = [each.with_workload(replace(each.workload, drawn=each.workload.drawn * CLOSER)) for each in judged]
    narrowed = Suite(SUITE, suite.title, suite.digest, tuple(closer))
    ours = {variant.id for variant in mine}
    keys = dict.fromkeys(variant.key for variant in chosen)
    rivals = dict.fromkeys(rival for key in keys for rival in _rivals(installed, key, narrowed, ours))
    return Plan(chosen, tuple(rivals), narrowed, len(selected) - len(judged))


def _rivals(installed: Installed, key: KernelKey, suite: Suite, ours: set[str]) -> Iterator[Variant]:
    """The variant that is the best for most workloads: of the same key, or, where there is none, of the same op, device and dtype."""
    others = [each for each in installed.keys(key.op) if (each.device, each.dtype) == (key.device, key.dtype)]
    for each in (key, *(other for other in others if other != key)):
        votes: Counter[Variant] = Counter()
        for item in suite.selected:
            if item.workload.op != key.op or item.workload.drawn:
                continue
            try:
                best = installed.registry.select_best(each, item.workload.axes)
            except (NoCompatibleKernelError, AmbiguousKernelError):
                continue
            if best.id not in ours:
                votes[best] += 1
        if votes:
            yield votes.most_common(1)[0][0]
            return


def verdicts(record: Record, plan: Plan) -> Table:
    """A row for each variant: how each of the four dimensions ended."""
    table = plain_table("Verdicts", "kernel", *DIMENSIONS)
    for variant in (*plan.mine, *plan.rivals):
        runs = [run for run in record.runs if run.kernel == variant.id]
        name = visible(variant.id) if variant in plan.mine else f"built in: {visible(variant.id)}"
        table.add_row(name, *(_cell([getattr(run, dimension) for run in runs]) for dimension in DIMENSIONS))
    return table


def _cell(found: Sequence[Verdict]) -> Text:
    if not found:
        return Text(units.NONE)
    counts = Counter(each.status for each in found)
    worst = groups.worst(counts)
    return Text(", ".join(f"{status.value} {counts[status]}" for status in Status if counts[status]), style=_STYLES[worst])


def reasons(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each reason why something is not right, and for each dimension of the candidate's that could not be judged at all."""
    for variant in (*plan.mine, *plan.rivals):
        runs = [run for run in record.runs if run.kernel == variant.id]
        for dimension in DIMENSIONS:
            found: dict[tuple[Status, str], list[Run]] = {}
            for run in runs:
                verdict: Verdict = getattr(run, dimension)
                if verdict.status is not Status.PASS:
                    found.setdefault((verdict.status, verdict.reason), []).append(run)
            judged = [item for item in found.items() if item[0][0] is not Status.NOT_RUN]
            silent = sum(map(len, found.values())) < len(runs) or variant not in plan.mine
            # The workloads that are measured come last in a suite, and their reasons say most.
            shown = judged or ([] if silent else list(found.items())[-1:])
            for (status, reason), of in shown[:_MOST_REASONS]:
                where = f"{of[0].workload.id}" + (f" and {len(of) - 1} more" if len(of) > 1 else "")
                text = f"{visible(variant.name)}: {dimension} {status.value} on {where}: {visible(reason)}"
                yield Text(text, style=_STYLES[status])
            if len(shown) > _MOST_REASONS:
                yield Text(f"{visible(variant.name)}: {dimension}: and {len(shown) - _MOST_REASONS} other reasons, in the Record")


def times(record: Record, plan: Plan) -> Table | None:
    """For each workload that was measured: the candidate's time beside the built-in kernel's. None where nothing was measured."""
    figures = ("cold", "built in", "ratio", "hot", "built in ", "ratio ")
    table = plain_table("Times", "kernel", "shape", *figures, right=figures)
    mine, rivals = ({variant.id for variant in variants} for variants in (plan.mine, plan.rivals))
    theirs = {(run.device, run.dtype, run.workload.id): run for run in record.runs if run.kernel in rivals}
    for run in record.runs:
        if run.kernel not in mine or not (run.performance.cold or run.performance.hot):
            continue
        other = theirs.get((run.device, run.dtype, run.workload.id))
        cells: list[str] = []
        for footing in ("cold", "hot"):
            own = getattr(run.performance, footing)
            built_in = getattr(other.performance, footing) if other is not None else None
            a, b = (each.timing.median_ns if each is not None else None for each in (own, built_in))
            cells += [units.time(a), units.time(b), f"{a / b:.2f}x" if a and b else units.NONE]
        table.add_row(visible(run.variant), groups.shape(run.workload), *cells)
    return table if table.rows else None
