"""`tritmark selftest`: the share of mutants that the judgement detects, for each op and workload."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tritmark.harness.selftest.population import DrawnMutants, MutantFate
    from tritmark.harness.selftest.run import MissedMutant, Result

_MOST_LINES = 3
"""Lines of each kind of miss; --json has all."""


def selftest(
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", autocompletion=completion.suites, help="The suite of workloads.")
    ] = "quick",
    op: Annotated[str, typer.Option(metavar="GLOB", autocompletion=completion.ops, help="Only these ops.")] = "*",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat the mutants and cases of an earlier run; drawn by default.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes; by default one per core.")] = None,
    bugs: Annotated[
        bool,
        typer.Option("--bugs", help="Instead, judge kernels with publicly reported faults, and their fixed twins."),
    ] = False,
    formats: Annotated[
        bool, typer.Option("--formats", help="Instead, make mutants of the packers and unpackers of formats.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the result, as JSON.")] = False,
) -> None:
    """Make mutants of a kernel of every op, and report the share that is detected.

    Passes if all fixed mutants are detected on the suite full (98 % on other suites), and 98 % of drawn mutants."""
    from secrets import randbelow

    from tritmark.harness.cli.progress import ProgressLine
    from tritmark.harness.machine.cpu import physical_cores
    from tritmark.harness.providers import load
    from tritmark.harness.selftest.run import execute

    if bugs and formats:
        raise UsageError("--bugs and --formats; legal: one of them")
    if formats:
        from tritmark.harness.cli.selftest_formats import tell as tell_formats

        raise typer.Exit(PASSED if tell_formats(load(), as_json=as_json) else FAILED)
    began = monotonic()
    drawn = randbelow(1 << 31) if seed is None else seed
    if bugs:
        from tritmark.harness.cli.selftest_bugs import tell

        raise typer.Exit(PASSED if tell(load(), suite, drawn, as_json=as_json) else FAILED)
    with ProgressLine(console(stderr=True)) as progress:
        result = execute(load(), suite, op, processes=jobs or physical_cores(), seed=drawn, observer=progress)
    if as_json:
        typer.echo(json.dumps(document(result), indent=1))
    else:
        _show(result, monotonic() - began)
    raise typer.Exit(PASSED if result.passed else FAILED)


def document(result: Result) -> dict[str, Any]:
    """The result for --json. Shares are from 0 to 1. The suite kills a mutant if any of its workloads kills it."""
    return {
        "suite": result.suite,
        "passed": result.passed,
        "goal": result.goal,
        "share": result.share,
        "ops": {
            op: {
                "everywhere": {"share": each.share, **_counts(each)},
                "suite": {"share": whole.share, **_counts(whole)},
            }
            for op, (each, whole) in result.ops().items()
        },
        "workloads": [
            {"op": op, "workload": workload, "share": tally.share, **_counts(tally)}
            for (op, workload), tally in result.workloads().items()
        ],
        "mutants": [
            {
                "key": str(key),
                "mutant": mutant,
                "outcome": outcome.value,
                "reason": result.harmless.get((key, mutant), ""),
            }
            for (key, mutant), outcome in result.mutants().items()
        ],
        "missed": [
            {"key": str(each.key), "mutant": each.mutant, "outcome": each.outcome.value, "where": each.where}
            for each in result.missed()
        ],
        "alarms": result.alarms,
        "left_out": result.left_out,
        "drawn": _drawn_document(result.drawn),
    }


def _drawn_document(drawn: DrawnMutants) -> dict[str, Any]:
    """The drawn mutants. `interval` is the exact 95 % interval; `struck` counts how often the fault of a survivor took
    effect."""
    from tritmark.harness.selftest.population import GOAL, interval

    def share(killed: int, count: int) -> dict[str, Any]:
        return {
            "killed": killed,
            "count": count,
            "share": killed / count if count else 1.0,
            "interval": interval(killed, count),
        }

    return {
        "seed": drawn.seed,
        "goal": GOAL,
        "passed": drawn.passed,
        **share(drawn.killed, len(drawn.fates)),
        "equivalent": drawn.equivalent,
        "ops": {op: share(*counts) for op, counts in drawn.by("op").items()},
        "kinds": {kind: share(*counts) for kind, counts in drawn.by("kind").items()},
        "survivors": [
            {"key": str(each.key), "number": each.number, "kind": each.kind, "mutant": each.text, "struck": each.struck}
            for each in drawn.survivors
        ],
        "alarms": drawn.alarms,
    }


def _counts(tally: Any) -> dict[str, int]:
    return {outcome.value: count for outcome, count in sorted(tally.counts.items())}


def _show(result: Result, seconds: float) -> None:
    """Print a row for each op, the first misses, both shares and the duration."""
    from tritmark.harness.cli.show import paragraphs
    from tritmark.harness.text.units import counted

    screen = console()
    paragraphs(screen, (_ops(result),))
    alarms = [*result.alarms, *result.drawn.alarms]
    _some(screen, [f"False alarm, no mutant was planted: {line}" for line in alarms], "bold red")
    _some(screen, [_missed(each) for each in result.missed()], "bold red")
    _some(screen, [_survivor(each) for each in result.drawn.survivors], "red")
    if result.left_out:
        screen.print(f"Left out as too large: {counted(len(result.left_out), 'workload')}", soft_wrap=True)
    _show_drawn(screen, result.drawn)
    said = "reached" if result.share >= result.goal and not result.alarms else "missed"
    screen.print(
        f"Kill rate: {_percent(result.share)} for the worst op, goal {_percent(result.goal)}: {said}; {seconds:.0f} s",
        soft_wrap=True,
    )


def _some(screen: Console, lines: list[str], style: str) -> None:
    from tritmark.harness.text.visible import visible

    # Wrapped lines would split the names of kernels.
    for line in lines[:_MOST_LINES]:
        screen.print(visible(line), style=style, soft_wrap=True)
    if len(lines) > _MOST_LINES:
        screen.print(f"and {len(lines) - _MOST_LINES:,} more; --json lists all", style=style, soft_wrap=True)


def _missed(each: MissedMutant) -> str:
    where = f"survives {each.where}" if each.where else f"{each.outcome.value} on every workload of the suite"
    return f"Not detected: {each.key}: {each.mutant}: {where}"


def _survivor(each: MutantFate) -> str:
    from tritmark.harness.text.units import counted

    met = (
        ""
        if each.struck is None
        else f"; took effect {counted(each.struck, 'time')}"
        if each.struck
        else "; no case triggered it"
    )
    return f"Survived: {each.key} no. {each.number} ({each.kind}): {each.text}{met}"


def _show_drawn(screen: Console, drawn: DrawnMutants) -> None:
    from tritmark.harness.selftest.population import GOAL, interval

    low, high = interval(drawn.killed, len(drawn.fates))
    said = "reached within the interval" if drawn.passed else "missed"
    screen.print(
        f"Drawn mutants: {drawn.killed} of {len(drawn.fates)} killed, {_percent(drawn.share)} (95 % interval "
        f"{_percent(low)} to {_percent(high)}), goal {_percent(GOAL)}: {said}; {drawn.equivalent} harmless "
        f"draws are not counted; repeat with --seed {drawn.seed}",
        soft_wrap=True,
    )


def _ops(result: Result) -> Table:
    """A row for each op: fixed mutants killed by the suite and by single workloads, and drawn mutants killed."""
    from tritmark.harness.selftest.run import MutantOutcome
    from tritmark.harness.text.table import plain_table

    heads = ("mutants", "killed by suite", "by workload", "drawn", "killed")
    table = plain_table(f"Mutants on the suite {result.suite}", "op", *heads, right=heads)
    drawn = result.drawn.by("op")
    for op, (each, whole) in result.ops().items():
        mutants = whole.counts.total() - whole.counts[MutantOutcome.HARMLESS]
        killed, count = drawn.get(op, (0, 0))
        row = [_percent(whole.share), _percent(each.share), f"{count:,}", f"{killed:,}"]
        table.add_row(op, f"{mutants:,}", *row)
    table.caption = "By workload: share of the pairs of mutant and workload in which the fault takes effect."
    table.caption_justify = "left"
    return table


def _percent(share: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(share * 1000) / 10:.1f} %"
