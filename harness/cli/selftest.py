"""`tritmark selftest`: the share of planted mutants that the judgement kills, for each op and workload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritmark.harness.cli import completion
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tritmark.harness.selftest.population import DrawnMutants
    from tritmark.harness.selftest.run import Result


def selftest(
    suite: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", autocompletion=completion.suites, help="Which workloads.")
    ] = "quick",
    op: Annotated[str, typer.Option(metavar="GLOB", autocompletion=completion.ops, help="Only these ops.")] = "*",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw these mutants and cases again; else others each time.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes side by side; else one a core.")] = None,
    bugs: Annotated[
        bool,
        typer.Option("--bugs", help="Instead: kernels with faults that were reported in public, and fixed twins."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Plant mutants into a candidate of every op and see whether they are found: all fixed ones on the full suite
    (98 % on others), and 98 % of those that are drawn. --bugs judges faulty kernels as others reported them."""
    from secrets import randbelow

    from tritmark.harness.cli.progress import ProgressLine
    from tritmark.harness.machine.cpu import physical_cores
    from tritmark.harness.providers import load
    from tritmark.harness.selftest.run import execute

    drawn = randbelow(1 << 31) if seed is None else seed
    if bugs:
        from tritmark.harness.cli.selftest_bugs import tell

        raise typer.Exit(PASSED if tell(load(), suite, drawn, as_json=as_json) else FAILED)
    with ProgressLine(console(stderr=True)) as progress:
        result = execute(load(), suite, op, processes=jobs or physical_cores(), seed=drawn, observer=progress)
    if as_json:
        typer.echo(json.dumps(document(result), indent=1))
    else:
        _show(result)
    raise typer.Exit(PASSED if result.passed else FAILED)


def document(result: Result) -> dict[str, Any]:
    """The result as JSON has it. Shares are from 0 to 1; a mutant of the suite is killed if any workload kills it."""
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
    """Drawn mutants. `interval` is the exact one of 95 %; `struck` is how often a survivor's mutant did something
    while it was judged."""
    from tritmark.harness.selftest.population import GOAL, interval

    def told(killed: int, count: int) -> dict[str, Any]:
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
        **told(drawn.killed, len(drawn.fates)),
        "equivalent": drawn.equivalent,
        "ops": {op: told(*counts) for op, counts in drawn.by("op").items()},
        "kinds": {kind: told(*counts) for kind, counts in drawn.by("kind").items()},
        "survivors": [
            {"key": str(each.key), "number": each.number, "kind": each.kind, "mutant": each.text, "struck": each.struck}
            for each in drawn.survivors
        ],
        "alarms": drawn.alarms,
    }


def _counts(tally: Any) -> dict[str, int]:
    return {outcome.value: count for outcome, count in sorted(tally.counts.items())}


def _show(result: Result) -> None:
    screen = console()
    screen.print(_workloads(result), end="\n\n")
    screen.print(_ops(result), end="\n\n")
    for (op, reason), mutants in _harmless(result).items():
        screen.print(f"Not applicable to {op}: {', '.join(mutants)}: {reason}", soft_wrap=True)
    for line in result.left_out:
        screen.print(f"Left out, too large: {line}", soft_wrap=True)
    for line in result.alarms:
        screen.print(f"False alarm, no mutant was planted: {line}", style="bold red", soft_wrap=True)
    for each in result.missed():
        where = f"survives {each.where}" if each.where else f"{each.outcome.value} on every workload of the suite"
        screen.print(f"Not caught: {each.key}: {each.mutant}: {where}", style="bold red", soft_wrap=True)
    _show_drawn(screen, result.drawn)
    said = "reached" if result.share >= result.goal and not result.alarms else "missed"
    screen.print(f"Kill rate: {_percent(result.share)} at the least of any op, goal {_percent(result.goal)}: {said}")


def _show_drawn(screen: Console, drawn: DrawnMutants) -> None:
    from tritmark.harness.selftest.population import GOAL, interval

    for what in ("kind", "op"):
        screen.print(_drawn_table(drawn, what), end="\n\n")
    for line in drawn.alarms:
        screen.print(f"False alarm, no mutant was drawn: {line}", style="bold red", soft_wrap=True)
    for each in drawn.survivors:
        met = "" if each.struck is None else f"; it struck {each.struck} times" if each.struck else "; no case fired it"
        screen.print(
            f"Survived: {each.key} no. {each.number} ({each.kind}): {each.text}{met}", style="red", soft_wrap=True
        )
    low, high = interval(drawn.killed, len(drawn.fates))
    said = "may be reached" if drawn.passed else "missed"
    screen.print(
        f"Drawn mutants: {drawn.killed} of {len(drawn.fates)} killed, {_percent(drawn.share)} (95 % interval "
        f"{_percent(low)} to {_percent(high)}), goal {_percent(GOAL)}: {said}; {drawn.equivalent} draws that do no "
        f"harm are not counted; again with --seed {drawn.seed}",
        soft_wrap=True,
    )


def _drawn_table(drawn: DrawnMutants, what: str) -> Table:
    from tritmark.harness.selftest.population import interval
    from tritmark.harness.text.table import plain_table

    columns = ("drawn", "killed", "share", "low", "high")
    table = plain_table(f"Drawn mutants by {'trigger' if what == 'kind' else what}", what, *columns, right=columns)
    for name, (killed, count) in drawn.by(what).items():
        low, high = interval(killed, count)
        table.add_row(name, str(count), str(killed), _percent(killed / count), _percent(low), _percent(high))
    return table


def _harmless(result: Result) -> dict[tuple[str, str], list[str]]:
    from tritmark.harness.selftest.run import MutantOutcome

    found: dict[tuple[str, str], list[str]] = {}
    for (key, mutant), outcome in result.mutants().items():
        if outcome is MutantOutcome.HARMLESS:
            mutants = found.setdefault((f"{key.op} ({key.format}, {key.dtype})", result.harmless[key, mutant]), [])
            mutants.append(mutant)
    return found


def _ops(result: Result) -> Table:
    from tritmark.harness.selftest.run import MutantOutcome
    from tritmark.harness.text.table import plain_table

    columns = (
        "planted",
        "killed",
        "survived",
        "equivalent",
        "admitted",
        "caught",
        "mutants",
        "caught by the suite",
        "not applicable",
    )
    table = plain_table(f"Mutants planted on the suite {result.suite}", "op", *columns, right=columns)
    for op, (each, whole) in result.ops().items():
        counts = [
            each.counts[outcome]
            for outcome in (
                MutantOutcome.KILLED,
                MutantOutcome.SURVIVED,
                MutantOutcome.EQUIVALENT,
                MutantOutcome.ADMITTED,
            )
        ]
        harmless = whole.counts[MutantOutcome.HARMLESS]
        mutants = whole.counts.total() - harmless
        row = [each.counts.total(), *counts, _percent(each.share), mutants, _percent(whole.share), harmless]
        table.add_row(op, *map(str, row))
    return table


def _workloads(result: Result) -> Table:
    from tritmark.harness.selftest.run import MutantOutcome
    from tritmark.harness.text.table import plain_table

    columns = ("killed", "survived", "equivalent", "admitted", "caught")
    table = plain_table("Workloads", "workload", *columns, right=columns)
    for (_, workload), tally in result.workloads().items():
        counts = [
            tally.counts[outcome]
            for outcome in (
                MutantOutcome.KILLED,
                MutantOutcome.SURVIVED,
                MutantOutcome.EQUIVALENT,
                MutantOutcome.ADMITTED,
            )
        ]
        table.add_row(workload, *map(str, counts), _percent(tally.share))
    return table


def _percent(share: float) -> str:
    """Rounded down, so that 100 % is all."""
    return f"{int(share * 1000) / 10:.1f} %"
