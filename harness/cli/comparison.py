"""What `tritmark check` prints: a user's kernel beside the best built-in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from tritmark.harness.candidate.plan import Plan
from tritmark.harness.cli.tables import STYLES
from tritmark.harness.record import DIMENSIONS, Proposal, Record, Run, Status, Timing, Verdict
from tritmark.harness.report import answer
from tritmark.harness.text import groups, units
from tritmark.harness.text.table import plain_table
from tritmark.harness.text.visible import visible

_MOST_REASONS = 3


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
    told = [
        Text(f"{status.value.upper()} {counts[status]:,}", style=STYLES[status])
        for status in groups.WORST_FIRST
        if counts[status]
    ]
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
                yield Text(
                    f"{visible(variant.name)}: {dimension}: and {len(shown) - _MOST_REASONS} other reasons, in "
                    "the Record"
                )


def proposals(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each rule whose proposal for one of the candidate's variants has a sure gain: a kernel that is right
    may be needlessly slow, which is no verdict."""
    for variant in plan.mine:
        found: dict[str, Proposal] = {}
        for each in record.proposals:
            if each.kernel == variant.id and each.gain.low > 1:
                found.setdefault(each.rule, each)
        for rule, each in found.items():
            told = f"{visible(variant.name)}: {rule} on {each.workload}, at least {each.gain.low:.2f}x: {each.edit}"
            yield Text(visible(told))


def times(record: Record, plan: Plan) -> Table | None:
    """For each workload that was measured: the candidate's time beside the built-in kernel's. None where nothing was
    measured.

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
