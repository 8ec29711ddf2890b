"""`tritmark selftest --formats`: which faults of packers and unpackers the golden vectors show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from tritmark.harness.cli.console import console

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed
    from tritmark.harness.selftest.format_mutants import FormatSelftest


def tell(installed: Installed, *, as_json: bool) -> bool:
    """Plant all faults and print the results. True if each was detected, without a false alarm."""
    from tritmark.harness.selftest.format_mutants import execute

    result = execute(installed)
    if as_json:
        typer.echo(json.dumps(document(result), indent=1))
    else:
        _show(result)
    return result.passed


def document(result: FormatSelftest) -> dict[str, Any]:
    """The result for --json. Shares are from 0 to 1, of the mutants that change something."""
    counts = result.counts()
    killed, count = (sum(each[place] for each in counts.values()) for place in (0, 1))
    return {
        "passed": result.passed,
        "killed": killed,
        "count": count,
        "share": killed / count if count else 1.0,
        "formats": {name: {"killed": each[0], "count": each[1]} for name, each in counts.items()},
        "mutants": [
            {
                "format": each.format,
                "mutant": each.mutant,
                "outcome": "killed" if each.killed_by else "equivalent" if each.equivalent else "survived",
                "by": each.killed_by,
            }
            for each in result.fates
        ],
        "alarms": list(result.alarms),
        "without_vectors": list(result.without_vectors),
    }


def _show(result: FormatSelftest) -> None:
    from tritmark.harness.text.table import plain_table

    screen, counts = console(), result.counts()
    table = plain_table("Faults of packers and unpackers", "format", "detected")
    for name, (killed, count) in counts.items():
        table.add_row(name, f"{killed} of {count}")
    screen.print(table, end="\n\n")
    for line in result.alarms:
        screen.print(f"False alarm, no fault was planted: {line}", style="bold red", soft_wrap=True)
    for each in result.survivors:
        screen.print(f"Not detected: {each.format}: {each.mutant}", style="bold red", soft_wrap=True)
    killed, count = (sum(each[place] for each in counts.values()) for place in (0, 1))
    share = f"{int(1000 * killed / count) / 10:.1f} %" if count else "none"
    equivalent = sum(each.equivalent and not each.killed_by for each in result.fates)
    without = ", ".join(result.without_vectors) or "none"
    screen.print(
        f"Faults detected: {killed} of {count}, {share}; {equivalent} change nothing; formats without golden vectors: "
        f"{without}",
        soft_wrap=True,
    )
