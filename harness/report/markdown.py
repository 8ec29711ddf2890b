"""The report in a few lines of Markdown, for a pull request: verdicts, failures, the comparison, proposals.

All text from a Record is in code spans, in which GitHub renders no markup, no link and no mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tritmark.harness.advise.ledger import UNTRIED
from tritmark.harness.advise.rank import rank
from tritmark.harness.record import Record, Status
from tritmark.harness.report import answer, compare, load, machine, summary, verdicts
from tritmark.harness.report.section import NOTHING, PageContext
from tritmark.harness.text import groups, units, unseen
from tritmark.harness.text.visible import visible

_MOST_FAILURES = 10
_MOST_CHANGES = 15
_MOST_PROPOSALS = 5
_MOST_BEST = 20
_LONGEST = 300
_TICKS = re.compile("`+")


def code(text: str) -> str:
    """The text as one code span, which no character of the text can end, not even in a table cell."""
    shown = " ".join(visible(text).split()) or " "
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
    # A span ends at as many backticks as began it. A table cell ends at a bar, and renderers differ in how they escape
    # one.
    shown = shown.replace("|", "\\x7c")
    fence = "`" * (1 + max((len(found) for found in _TICKS.findall(shown)), default=0))
    padded = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
    return f"{fence}{padded}{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table. Columns with a name that begins with a blank are aligned right."""
    rule = "|".join("--:" if name.startswith(" ") else "---" for name in head)
    return [
        f"| {' | '.join(name.strip() for name in head)} |",
        f"|{rule}|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def markdown(record: Record, given: PageContext = NOTHING) -> str:
    """The report of `record` as Markdown."""
    lines = [f"**NOT BELIEVED** {code(given.distrust)}", ""] if given.distrust else []
    lines += [f"### {summary.status(record)}: {summary.headline(record)}", ""]
    reported = answer.answers(record)
    lines += [
        f"- {each.question} **{each.status.value.upper()}** {code(answer.in_words(each.statements))}"
        for each in reported
    ]
    lines += [""] if reported else []
    lanes = (
        f"{code(lane.device)} {_lane(lane.ran, lane.simulated)}{f': {code(lane.reason)}' if lane.reason else ''}"
        for lane in record.lanes
    )
    lines += [
        f"Devices: {', '.join(lanes)}.  " if record.lanes else "",
        f"Machine: {code(machine.one_line(record))}.  ",
    ]
    noise = compare.noise(record)
    lines += [
        f"Noise floor: {units.spread(noise[0])}.  " if noise else "",
        f"During timing: {load.summary(record)}.  " if load.summary(record) else "",
        f"Record {code(record.id)}, suite {code(record.suite)}.",
        "",
    ]
    lines += _failures(record)
    if record.not_judged:
        lines += ["#### Not judged", "", *(f"- {code(unseen.line(each))}" for each in record.not_judged), ""]
    if given.baseline is not None:
        lines += _comparison(record, given.baseline)
    lines += _proposals(record, given)
    lines += _best(record)
    text = "\n".join(lines)
    return re.sub("\n{3,}", "\n\n", text).strip() + "\n"


def _lane(ran: bool, simulated: bool) -> str:
    return ("SIMULATED" if simulated else "RAN") if ran else "NOT RUN"


def _failures(record: Record) -> list[str]:
    failed = [kernel for kernel in groups.kernels(record) if kernel.status in {Status.FAIL, Status.ERROR}]
    layers = [layer for layer in record.layers if layer.status in {Status.FAIL, Status.ERROR}]
    reported = [
        f"- {kernel.status.value.upper()} {code(kernel.id)}: {code(verdicts.notes(kernel.first)[0])}"
        for kernel in failed
    ]
    reported += [f"- {layer.status.value.upper()} layer {code(layer.name)}: {code(layer.reason)}" for layer in layers]
    if not reported:
        return []
    more = len(reported) - _MOST_FAILURES
    return ["#### Failures", "", *reported[:_MOST_FAILURES], *([f"- and {more:,} more"] if more > 0 else []), ""]


def _comparison(record: Record, baseline: Record) -> list[str]:
    found = compare.compare(record, baseline)
    lines = [f"#### Against {code(baseline.id)}", ""]
    if not found.pairs:
        return [*lines, f"Not compared: {code(found.refused or 'no Run was measured in both')}.", ""]
    counts = ", ".join(f"{len(found.having(change)):,} {change.value}" for change in compare.Change)
    lines += [
        (
            f"{counts}; changes within ±{units.percent(compare.BAND)} are noise. Not interleaved: for a verdict, run "
            "`tritmark gate BASE HEAD`."
        ),
        "",
    ]
    changed = [*found.having(compare.Change.SLOWER), *found.having(compare.Change.FASTER)]
    rows = [
        (
            pair.change.value.upper(),
            code(pair.run.kernel),
            code(f"{groups.shape(pair.run.workload)}, {pair.name}"),
            units.time(pair.before.timing.median_ns),
            units.time(pair.now.timing.median_ns),
            units.times(pair.ratio),
        )
        for pair in changed[:_MOST_CHANGES]
    ]
    if rows:
        lines += table(("Change", "Kernel", "Shape", " Before", " Now", " Speed-up (95 %)"), rows)
    if len(changed) > _MOST_CHANGES:
        lines += [f"{len(changed) - _MOST_CHANGES:,} more.", ""]
    return lines


def _proposals(record: Record, given: PageContext) -> list[str]:
    if not record.proposals:
        return []
    ranked = rank(record, record.proposals, given.weighed())
    rows = [
        (
            f"{units.time(one.saved_ns)} of {units.time(one.of_ns)}",
            f"{units.number(one.proposal.gain.low)}x to {units.number(one.proposal.gain.high)}x",
            code(one.proposal.title),
            code(one.proposal.kernel),
            code(one.proposal.edit),
            f"{code(one.proposal.rule)} {code(given.rules.get(one.proposal.rule, UNTRIED))}",
        )
        for one in ranked[:_MOST_PROPOSALS]
    ]
    more = len(ranked) - len(rows)
    return [
        "#### What to change next",
        "",
        *table((" Expected saving", " Gain", "What", "Kernel", "Edit", "Rule"), rows),
        *([f"{units.counted(more, 'more proposal')} with a smaller or less certain saving.", ""] if more else []),
    ]


def _best(record: Record) -> list[str]:
    rows = []
    for (device, op, format, dtype), runs in list(groups.by_key(groups.right(record)).items())[:_MOST_BEST]:
        best = groups.largest(groups.best_variant(runs))
        cells: list[str] = []
        for footing in (best.performance.cold, best.performance.hot):
            cells += [units.timed(footing.timing if footing else None), units.share(groups.fraction(footing))]
        rows.append((code(f"{device}/{op}/{format}/{dtype}"), code(best.variant), *cells))
    head = ("Kernel", "Best variant", " Cold", " of the ceiling", " Hot", " of the ceiling")
    return (
        ["<details><summary>The best variant of each op</summary>", "", *table(head, rows), "</details>", ""]
        if rows
        else []
    )
