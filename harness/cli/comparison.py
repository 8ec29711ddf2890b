"""Output of `tritmark check`: the user's kernel beside the best built-in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from tritmark.harness.candidate.plan import Plan
from tritmark.harness.cli.tables import STYLES
from tritmark.harness.record import DIMENSIONS, Cause, Proposal, Record, Run, Status, Timing, Verdict
from tritmark.harness.report import answer
from tritmark.harness.spec import Variant
from tritmark.harness.text import groups, units
from tritmark.harness.text.table import plain_table
from tritmark.harness.text.visible import visible

_MOST_REASONS = 3


def verdicts(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each dimension of each variant of the candidate, and a line for each built-in variant."""
    simulated = groups.simulated(record)
    for variant in plan.mine:
        title = visible(variant.id) + (" (simulated)" if variant.key.device in simulated else "")
        yield Text(title, style="bold")
        runs = [run for run in record.runs if run.kernel == variant.id]
        for dimension in DIMENSIONS:
            line = Text(f"  {dimension:<12} ").append_text(_counts([run.verdict(dimension) for run in runs]))
            yield line.append(_speed(record, plan, variant)) if dimension == "performance" else line
        for power in dict.fromkeys(filter(None, map(answer.power, runs))):
            yield Text(f"  {visible(power)}")
    for variant in plan.rivals:
        runs = [run for run in record.runs if run.kernel == variant.id]
        reported = Text(f"beside the built-in {visible(variant.id)}: ")
        yield reported.append_text(_counts([run.verdict(dimension) for run in runs for dimension in DIMENSIONS]))


def _speed(record: Record, plan: Plan, variant: Variant) -> str:
    """The speed relative to the built-in kernel: a PASS of performance states only that the kernel was measured."""
    pairs = [pair for pair in _pairs(record, plan) if pair[0].kernel == variant.id and pair[1] is not None]
    both = [
        (a, b)
        for mine, other in pairs
        for data in ("cold", "hot")
        if (a := _timing(mine, data)) is not None and (b := _timing(other, data)) is not None
    ]
    found = [b.median_ns / a.median_ns for a, b in both if not (a.too_noisy or b.too_noisy)]
    middle = groups.mean(found)
    if middle is None:
        return " (measured only): too noisy to compare" if both else ""
    names = " and ".join(dict.fromkeys(visible(other.variant) for _, other in pairs if other is not None))
    span = "" if len(found) == 1 else f" ({_times(min(found))} to {_times(max(found))})"
    return f" (measured only): {_times(middle)} the speed of the built-in {names}{span}"


def _times(ratio: float) -> str:
    return f"{units.number(ratio)}x"


def _pairs(record: Record, plan: Plan) -> Iterator[tuple[Run, Run | None]]:
    """Each Run of the candidate that was measured, and the built-in kernel's on the same data."""
    mine, rivals = ({variant.id for variant in variants} for variants in (plan.mine, plan.rivals))
    theirs = {(run.device, run.dtype, run.workload.id): run for run in record.runs if run.kernel in rivals}
    for run in record.runs:
        if run.kernel in mine and (run.performance.cold or run.performance.hot):
            yield run, theirs.get((run.device, run.dtype, run.workload.id))


def _counts(found: Sequence[Verdict]) -> Text:
    """Counts of each status. If any Run was judged, those that the suite leaves out are not counted."""
    judged = any(each.status is not Status.NOT_RUN for each in found)
    counts = Counter(each.status for each in found if not (judged and each.cause is Cause.SUITE))
    reported = [
        Text(f"{status.value.upper()} {counts[status]:,}", style=STYLES[status])
        for status in groups.WORST_FIRST
        if counts[status]
    ]
    return Text(", ").join(reported) if reported else Text(units.NONE)


def reasons(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each reason of a verdict that is neither PASS nor NOT RUN."""
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
    """A line for each rule with a proposal for the candidate whose gain exceeds 1 over its whole interval. A correct
    kernel may be needlessly slow, and no verdict states that."""
    for variant in plan.mine:
        found: dict[str, Proposal] = {}
        for each in record.proposals:
            if each.kernel == variant.id and each.gain.low > 1:
                found.setdefault(each.rule, each)
        for rule, each in found.items():
            text = f"{visible(variant.name)}: {rule} on {each.workload}, at least {each.gain.low:.2f}x: {each.edit}"
            yield Text(visible(text))


def times(record: Record, plan: Plan) -> Table | None:
    """The times of the candidate and the built-in kernel on each measured workload; None if nothing was measured.

    The two were not interleaved, so the ratio is a rough comparison.
    """
    figures = ("yours", "built in", "speed")
    several = len(plan.mine) > 1
    table = plain_table("Times", *(["kernel"] if several else []), "shape", "data", *figures, right=figures)
    for run, other in _pairs(record, plan):
        head = [*([visible(run.variant)] if several else []), groups.shape(run.workload)]
        for data in ("cold", "hot"):
            a, b = (_timing(each, data) for each in (run, other))
            reported = [_time(each, timing) for each, timing in ((run, a), (other, b))]
            if any(each is not None and getattr(each.performance, data) for each in (run, other)):
                table.add_row(*head, data, *reported, _ratio(a, b))
                head = [""] * len(head)
    return table if table.rows else None


def _ratio(mine: Timing | None, other: Timing | None) -> str:
    if mine is None or other is None:
        return units.NONE
    return units.NOISY if mine.too_noisy or other.too_noisy else _times(other.median_ns / mine.median_ns)


def _timing(run: Run | None, data: str) -> Timing | None:
    footing = None if run is None or groups.doubted(run) else getattr(run.performance, data)
    return None if footing is None else footing.timing


def _time(run: Run | None, timing: Timing | None) -> str:
    return "doubted" if run is not None and groups.doubted(run) else units.timed(timing)
