"""Output of `tritmark check`: the user's kernel beside the best built-in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from tritmark.harness.advise.ledger import UNTRIED, Ledger
from tritmark.harness.candidate.plan import Plan
from tritmark.harness.cli.tables import STYLES
from tritmark.harness.record import DIMENSIONS, Cause, Proposal, Record, Run, Status, Timing, Verdict
from tritmark.harness.report import answer
from tritmark.harness.spec import Variant
from tritmark.harness.text import groups, units
from tritmark.harness.text.table import plain_table
from tritmark.harness.text.visible import visible

_MOST_REASONS = 3
_SPEED = 65
"""Columns for the speed, beside its heading, on a terminal of 80."""


def verdicts(record: Record, plan: Plan) -> Iterator[Text]:
    """A line for each dimension of each variant of the candidate, and a line for each built-in variant."""
    simulated = groups.simulated(record)
    for variant in plan.mine:
        title = visible(variant.id) + (" (simulated)" if variant.key.device in simulated else "")
        yield Text(title, style="bold")
        runs = [run for run in record.runs if run.kernel == variant.id]
        for dimension in DIMENSIONS:
            counts = _counts([run.verdict(dimension) for run in runs], "Run")
            only = " (measured only)" if dimension == "performance" and any(_pairs(record, plan)) else ""
            yield Text(f"  {dimension:<12} ").append_text(counts).append(only)
            if dimension == "performance":
                lines = _speed(record, plan, variant)
                yield from (Text(f"  {'' if nth else 'speed':<12} {line}") for nth, line in enumerate(lines))
        for power in dict.fromkeys(filter(None, map(answer.power, runs))):
            yield Text(f"  {visible(power)}")
    for variant in plan.rivals:
        runs = [run for run in record.runs if run.kernel == variant.id]
        yield Text(f"beside the built-in {visible(variant.id)}:")
        found = [run.verdict(dimension) for run in runs for dimension in DIMENSIONS]
        yield Text("  ").append_text(_counts(found, "verdict"))


def _speed(record: Record, plan: Plan, variant: Variant) -> Iterator[str]:
    """The speed relative to the built-in kernel: a PASS of performance states only that the kernel was measured."""
    pairs = [(mine, other) for mine, other in _pairs(record, plan) if mine.kernel == variant.id and other is not None]
    reported = [text for data in ("cold", "hot") if (text := _relative(pairs, data))]
    if not reported:
        return
    names = " and ".join(dict.fromkeys(visible(other.variant) for _, other in pairs))
    line = f"{', '.join(reported)}, relative to the built-in {names}"
    yield from [line] if len(line) <= _SPEED else [*reported, f"relative to the built-in {names}"]
    threads = {(a, b) for mine, other in pairs if (a := _threads(mine)) != (b := _threads(other)) if a and b}
    for a, b in sorted(threads):
        yield f"unequal threads: yours on {units.counted(a, 'thread')}, the built-in on {b:,}"


def _relative(pairs: Sequence[tuple[Run, Run]], data: str) -> str:
    """0.719x cold: the built-in kernel's time over the candidate's, the geometric mean over the shapes; "" without a
    time of both."""
    both = [
        (a, b)
        for mine, other in pairs
        if (a := _timing(mine, data)) is not None and (b := _timing(other, data)) is not None
    ]
    found = [b.median_ns / a.median_ns for a, b in both if not (a.too_noisy or b.too_noisy)]
    middle = groups.mean(found)
    if middle is not None:
        span = f" ({_times(min(found))} to {_times(max(found))} at {len(found):,} shapes)" if len(found) > 1 else ""
        return f"{_times(middle)} {data}{span}"
    wide = [ratio for a, b in both if (ratio := _wide(a, b))]
    if len(both) == 1 and wide:
        return f"{data} {wide[0]}"
    return f"{data} {units.NOISY} to compare" if both else ""


def _wide(mine: Timing, other: Timing) -> str:
    """about 29.0x slower (12.0x to 40.0x: wide). "" if the interval of the ratio does not show which one is faster."""
    if min(mine.low_ns, other.low_ns) <= 0:
        return ""
    return units.speed(other.median_ns / mine.median_ns, other.low_ns / mine.high_ns, other.high_ns / mine.low_ns)


def _threads(run: Run) -> int:
    """Threads that took part; 0 if the code does not report them."""
    return 0 if run.receipt is None else run.receipt.threads


def _times(ratio: float) -> str:
    return f"{units.number(ratio)}x"


def _pairs(record: Record, plan: Plan) -> Iterator[tuple[Run, Run | None]]:
    """Each Run of the candidate that was measured, and the built-in kernel's on the same data."""
    mine, rivals = ({variant.id for variant in variants} for variants in (plan.mine, plan.rivals))
    theirs = {(run.device, run.dtype, run.workload.id): run for run in record.runs if run.kernel in rivals}
    for run in record.runs:
        if run.kernel in mine and (run.performance.cold or run.performance.hot):
            yield run, theirs.get((run.device, run.dtype, run.workload.id))


def _counts(found: Sequence[Verdict], noun: str) -> Text:
    """Counts of each status: FAIL 1 Run, PASS 2. If any Run was judged, those that the suite leaves out are not
    counted."""
    judged = any(each.status is not Status.NOT_RUN for each in found)
    counts = Counter(each.status for each in found if not (judged and each.cause is Cause.SUITE))
    present = [status for status in groups.WORST_FIRST if counts[status]]
    if not present:
        return Text(units.NONE)
    words = [units.counted(counts[present[0]], noun), *(f"{counts[status]:,}" for status in present[1:])]
    reported = [
        Text(f"{status.value.upper()} {text}", style=STYLES[status])
        for status, text in zip(present, words, strict=True)
    ]
    return Text(", ").join(reported)


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
                    f"{visible(variant.name)}: {dimension}: and "
                    f"{units.counted(len(shown) - _MOST_REASONS, 'other reason')}, in "
                    "the Record"
                )


def proposals(record: Record, plan: Plan, ledger: Ledger) -> Iterator[Text]:
    """A line for each rule with a proposal for the candidate whose gain exceeds 1 over its whole interval, with a mark
    if the rule has no outcome. A correct kernel may be needlessly slow, and no verdict states that."""
    for variant in plan.mine:
        found: dict[str, Proposal] = {}
        for each in record.proposals:
            if each.kernel == variant.id and each.gain.low > 1:
                found.setdefault(each.rule, each)
        for rule, each in found.items():
            mark = "" if ledger.standing(rule).trials else f" ({UNTRIED})"
            gain = f"at least {each.gain.low:.2f}x"
            text = f"{visible(variant.name)}: {rule}{mark} on {each.workload}, {gain}: {each.edit}"
            yield Text(visible(text))


def times(record: Record, plan: Plan) -> Table | None:
    """The times of the candidate and the built-in kernel on each measured workload; None if nothing was measured.

    The two were not interleaved, so the ratio is a rough comparison.
    """
    figures = ("yours", "ceil.", "built in", "ceil. ", "speed")
    several = len(plan.mine) > 1
    table = plain_table("Times", *(["kernel"] if several else []), "shape", "data", *figures, right=figures)
    for run, other in _pairs(record, plan):
        head = [*([visible(run.variant)] if several else []), groups.shape(run.workload)]
        for data in ("cold", "hot"):
            a, b = (_timing(each, data) for each in (run, other))
            reported = [cell for each in (run, other) for cell in _figures(each, data)]
            if any(each is not None and getattr(each.performance, data) for each in (run, other)):
                table.add_row(*head, data, *reported, _ratio(a, b))
                head = [""] * len(head)
    table.padding = (0, 1, 0, 0)
    table.caption = "±: half of the 95 % interval; ceil.: percent of the ceiling."
    table.caption_justify = "left"
    return table if table.rows else None


def _ratio(mine: Timing | None, other: Timing | None) -> str:
    if mine is None or other is None:
        return units.NONE
    if mine.too_noisy or other.too_noisy:
        return "about " + _times(other.median_ns / mine.median_ns) if _wide(mine, other) else units.NOISY
    return _times(other.median_ns / mine.median_ns)


def _timing(run: Run | None, data: str) -> Timing | None:
    footing = None if run is None or groups.doubted(run) else getattr(run.performance, data)
    return None if footing is None else footing.timing


def _figures(run: Run | None, data: str) -> tuple[str, str]:
    """A time, and its percent of the ceiling."""
    if run is not None and groups.doubted(run):
        return "doubted", units.NONE
    footing = None if run is None else getattr(run.performance, data)
    part = groups.part(footing)
    share = units.NONE if part is None else f"{100 * part:.{0 if part >= 0.1 else 1}f}%"
    if part is None and groups.fraction(footing) is not None:
        share = "noisy"
    return units.timed(None if footing is None else footing.timing, "%"), share
