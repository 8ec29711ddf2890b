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
from tritmark.harness.record import DIMENSIONS, Record, Run, Status, Timing, Verdict
from tritmark.harness.report import answer, groups, units
from tritmark.harness.report.text import visible
from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.suite import Selected, Suite
from tritmark.harness.tables import STYLES

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

SUITE = "check"
"""What the suite of such a Record is called."""
CLOSER = 5
"""Times as many drawn cases as in a run of the suite."""

SHAPES = 3
"""Workloads of a kernel that are timed where its accuracy is judged on drawn cases: the first of the suite, the middle one and the last."""


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


def planned(
    installed: Installed,
    mine: Sequence[Variant],
    suite: Suite,
    op: str = "*",
    device: str = "*",
    dimensions: frozenset[str] = frozenset(DIMENSIONS),
) -> Plan:
    """What is checked in these dimensions: rivals run for their times alone, and workloads that are not measured for accuracy alone.

    Raises UsageError where the candidate has nothing for that op or device, or the suite nothing for its ops.
    """
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
    if "accuracy" not in dimensions:
        judged = [each for each in judged if each.workload.measure] or judged
    # One kernel alone can be looked at more closely than all of them, and at fewer of the shapes that are timed.
    few = _few(chosen, judged) if any(each.workload.drawn for each in judged) else judged
    closer = [each.with_workload(replace(each.workload, drawn=each.workload.drawn * CLOSER)) for each in few]
    narrowed = Suite(SUITE, suite.title, suite.digest, tuple(closer))
    ours = {variant.id for variant in mine}
    keys = dict.fromkeys(variant.key for variant in chosen)
    timed = keys if "performance" in dimensions else ()
    rivals = dict.fromkeys(rival for key in timed for rival in _rivals(installed, key, narrowed, ours))
    left_out = sum(each.workload.measure for each in selected) - sum(each.workload.measure for each in judged)
    return Plan(chosen, tuple(rivals), narrowed, left_out)


def _few(chosen: Sequence[Variant], selected: Sequence[Selected]) -> list[Selected]:
    """The workloads less those beyond SHAPES that each of the variants would be timed on."""
    kept: set[str] = set()
    for variant in chosen:
        key = variant.key
        mine = [each.workload for each in selected if each.workload.op == key.op and each.admits(key.format, key.dtype, key.device)]
        timed = [workload for workload in mine if workload.measure and not any(c.refusal(workload.axes) for c in variant.constraints)]
        if len(timed) > SHAPES:
            timed = [timed[round(place * (len(timed) - 1) / (SHAPES - 1))] for place in range(SHAPES)]
        kept |= {workload.id for workload in timed}
    return [each for each in selected if not each.workload.measure or each.workload.id in kept]


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


def verdicts(record: Record, plan: Plan) -> Iterator[Text]:
    """Each of the candidate's variants with a line for each dimension, and a line for each built-in one."""
    for variant in plan.mine:
        yield Text(visible(variant.id), style="bold")
        runs = [run for run in record.runs if run.kernel == variant.id]
        for dimension in DIMENSIONS:
            yield Text(f"  {dimension:<12} ").append_text(_counts([run.verdict(dimension) for run in runs]))
        for power in dict.fromkeys(filter(None, map(answer.power, runs))):
            yield Text(f"  {visible(power)}")
    for variant in plan.rivals:
        runs = [run for run in record.runs if run.kernel == variant.id]
        told = Text(f"beside the built-in {visible(variant.id)}: ")
        yield told.append_text(_counts([run.verdict(dimension) for run in runs for dimension in DIMENSIONS]))


def _counts(found: Sequence[Verdict]) -> Text:
    counts = Counter(each.status for each in found)
    told = [Text(f"{status.value.upper()} {counts[status]:,}", style=STYLES[status]) for status in groups.WORST_FIRST if counts[status]]
    return Text(", ").join(told) if told else Text(units.NONE)


def reasons(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each reason why something is not right; what was not run is told elsewhere."""
    for variant in (*plan.mine, *plan.rivals):
        runs = [run for run in record.runs if run.kernel == variant.id]
        for dimension in DIMENSIONS:
            found: dict[tuple[Status, str], list[Run]] = {}
            for run in runs:
                verdict: Verdict = getattr(run, dimension)
                if verdict.status is not Status.PASS:
                    found.setdefault((verdict.status, verdict.reason), []).append(run)
            shown = [item for item in found.items() if item[0][0] is not Status.NOT_RUN]
            for (status, reason), of in shown[:_MOST_REASONS]:
                where = f"{of[0].workload.id}" + (f" and {len(of) - 1} more" if len(of) > 1 else "")
                text = f"{visible(variant.name)}: {dimension} {status.value} on {where}: {visible(reason)}"
                yield Text(text, style=STYLES[status])
            if len(shown) > _MOST_REASONS:
                yield Text(f"{visible(variant.name)}: {dimension}: and {len(shown) - _MOST_REASONS} other reasons, in the Record")


def times(record: Record, plan: Plan) -> Table | None:
    """For each workload that was measured: the candidate's time beside the built-in kernel's. None where nothing was measured.

    The two were not timed by turns, so their ratio says roughly how they compare, and claims nothing.
    """
    figures = ("yours", "built in", "about")
    several = len(plan.mine) > 1
    table = plain_table("Times", *(["kernel"] if several else []), "shape", "data", *figures, right=figures)
    mine, rivals = ({variant.id for variant in variants} for variants in (plan.mine, plan.rivals))
    theirs = {(run.device, run.dtype, run.workload.id): run for run in record.runs if run.kernel in rivals}
    for run in record.runs:
        if run.kernel not in mine or not (run.performance.cold or run.performance.hot):
            continue
        other = theirs.get((run.device, run.dtype, run.workload.id))
        head = [*([visible(run.variant)] if several else []), groups.shape(run.workload)]
        for data in ("cold", "hot"):
            a, b = (_timing(each, data) for each in (run, other))
            told = [_told(each, timing) for each, timing in ((run, a), (other, b))]
            table.add_row(*head, data, *told, f"{a.median_ns / b.median_ns:.2f}x" if a and b else units.NONE)
            head = [""] * len(head)
    return table if table.rows else None


def _timing(run: Run | None, data: str) -> Timing | None:
    footing = None if run is None or groups.doubted(run) else getattr(run.performance, data)
    return None if footing is None else footing.timing


def _told(run: Run | None, timing: Timing | None) -> str:
    return "doubted" if run is not None and groups.doubted(run) else units.timed(timing)
