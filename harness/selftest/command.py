"""`tritmark selftest`: the share of planted faults that the judgement kills, for each op and workload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tritmark.harness import completion
from tritmark.harness.status import FAILED, PASSED

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.selftest.run import Result


def selftest(
    suite: Annotated[str, typer.Option(metavar="NAME|FILE.toml", autocompletion=completion.suites, help="Which workloads.")] = "quick",
    op: Annotated[str, typer.Option(metavar="GLOB", autocompletion=completion.ops, help="Only these ops.")] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Plant faults into a candidate of every op and see whether they are found: 100 % of them on the full suite, 98 % on others."""
    from tritmark.harness.machine.cpu import physical_cores
    from tritmark.harness.providers import load
    from tritmark.harness.selftest.run import execute

    result = execute(load(), suite, op, processes=physical_cores())
    if as_json:
        typer.echo(json.dumps(document(result), indent=1))
    else:
        _show(result)
    raise typer.Exit(PASSED if result.passed else FAILED)


def document(result: Result) -> dict[str, Any]:
    """The result as JSON has it. Shares are from 0 to 1; a fault of the suite is killed if any workload kills it."""
    return {
        "suite": result.suite,
        "passed": result.passed,
        "goal": result.goal,
        "share": result.share,
        "ops": {
            op: {"everywhere": {"share": each.share, **_counts(each)}, "suite": {"share": whole.share, **_counts(whole)}}
            for op, (each, whole) in result.ops().items()
        },
        "workloads": [
            {"op": op, "workload": workload, "share": tally.share, **_counts(tally)} for (op, workload), tally in result.workloads().items()
        ],
        "faults": [
            {"key": str(key), "fault": fault, "outcome": outcome.value, "reason": result.harmless.get((key, fault), "")}
            for (key, fault), outcome in result.faults().items()
        ],
        "missed": [
            {"key": str(each.key), "fault": each.fault, "outcome": each.outcome.value, "where": each.where} for each in result.missed()
        ],
        "alarms": result.alarms,
        "left_out": result.left_out,
    }


def _counts(tally: Any) -> dict[str, int]:
    return {outcome.value: count for outcome, count in sorted(tally.counts.items())}


def _show(result: Result) -> None:
    import os
    import sys

    from rich.console import Console

    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(width=200 if wide else None, markup=False, emoji=False, highlight=False)
    console.print(_workloads(result), end="\n\n")
    console.print(_ops(result), end="\n\n")
    for (op, reason), faults in _harmless(result).items():
        console.print(f"Not applicable to {op}: {', '.join(faults)}: {reason}", soft_wrap=True)
    for line in result.left_out:
        console.print(f"Left out, too large: {line}", soft_wrap=True)
    for line in result.alarms:
        console.print(f"False alarm, no fault was planted: {line}", style="bold red", soft_wrap=True)
    for each in result.missed():
        where = f"survives {each.where}" if each.where else f"{each.outcome.value} on every workload of the suite"
        console.print(f"Not caught: {each.key}: {each.fault}: {where}", style="bold red", soft_wrap=True)
    said = "reached" if result.passed else "missed"
    console.print(f"Kill rate: {_percent(result.share)} at the least of any op, goal {_percent(result.goal)}: {said}")


def _harmless(result: Result) -> dict[tuple[str, str], list[str]]:
    from tritmark.harness.selftest.run import Outcome

    found: dict[tuple[str, str], list[str]] = {}
    for (key, fault), outcome in result.faults().items():
        if outcome is Outcome.HARMLESS:
            faults = found.setdefault((f"{key.op} ({key.format}, {key.dtype})", result.harmless[key, fault]), [])
            faults.append(fault)
    return found


def _ops(result: Result) -> Table:
    from tritmark.harness.listings import plain_table
    from tritmark.harness.selftest.run import Outcome

    columns = ("planted", "killed", "survived", "equivalent", "admitted", "caught", "faults", "caught by the suite", "not applicable")
    table = plain_table(f"Faults planted on the suite {result.suite}", "op", *columns, right=columns)
    for op, (each, whole) in result.ops().items():
        counts = [each.counts[outcome] for outcome in (Outcome.KILLED, Outcome.SURVIVED, Outcome.EQUIVALENT, Outcome.ADMITTED)]
        harmless = whole.counts[Outcome.HARMLESS]
        faults = whole.counts.total() - harmless
        row = [each.counts.total(), *counts, _percent(each.share), faults, _percent(whole.share), harmless]
        table.add_row(op, *map(str, row))
    return table


def _workloads(result: Result) -> Table:
    from tritmark.harness.listings import plain_table
    from tritmark.harness.selftest.run import Outcome

    columns = ("killed", "survived", "equivalent", "admitted", "caught")
    table = plain_table("Workloads", "workload", *columns, right=columns)
    for (_, workload), tally in result.workloads().items():
        counts = [tally.counts[outcome] for outcome in (Outcome.KILLED, Outcome.SURVIVED, Outcome.EQUIVALENT, Outcome.ADMITTED)]
        table.add_row(workload, *map(str, counts), _percent(tally.share))
    return table


def _percent(share: float) -> str:
    """Rounded down, so that 100 % is all."""
    return f"{int(share * 1000) / 10:.1f} %"
