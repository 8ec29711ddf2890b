"""`tritmark selftest --bugs`: which publicly reported faults are detected, and by which guard or rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.progress import ProgressLine
from tritmark.harness.text.visible import visible

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed
    from tritmark.harness.record import Layer, Run
    from tritmark.harness.selftest.bugs import BugResult, BugVerdict
    from tritmark.harness.store import Partial


class QuietProgress(ProgressLine):
    """An Observer that shows progress and no failures, because faulty kernels are expected to fail."""

    def began(self, partial: Partial) -> None:
        """Nothing is kept."""

    def finished(self, found: Run | Layer) -> None:
        """Count one Run."""
        self.advance()


def tell(installed: Installed, suite: str, seed: int, *, as_json: bool) -> bool:
    """Judge all faulty kernels and print the results. True if each fault was detected and each fixed twin passed."""
    from tritmark.harness.selftest.bugs import execute

    with QuietProgress(console(stderr=True)) as progress:
        results = execute(installed, seed=seed, observer=progress, suite=suite)
    if as_json:
        typer.echo(json.dumps(document(results, seed), indent=1))
    else:
        _show(results, seed)
    return _passed(results)


def document(results: Sequence[BugResult], seed: int) -> dict[str, Any]:
    """The result for --json. `share` counts only the kernels that this machine can judge."""
    judged = [each for each in results if not each.left_out]
    caught = sum(each.caught for each in judged)
    return {
        "seed": seed,
        "passed": _passed(results),
        "caught": caught,
        "judged": len(judged),
        "share": caught / len(judged) if judged else 1.0,
        "bugs": [
            {
                "file": each.bug.file,
                "kind": each.bug.kind,
                "reported": each.bug.reported,
                "expected": each.bug.model_dump(include={"dimension", "verdicts", "guards", "rules"}, mode="json"),
                "came": _came(each.faulty),
                "fixed": _came(each.fixed),
                "caught": each.caught,
                "cleared": each.cleared,
                "left_out": each.left_out,
            }
            for each in results
        ],
    }


def _came(found: BugVerdict | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"verdict": found.status.value, "guards": found.guards, "rules": found.rules, "told": found.reason}


def _passed(results: Sequence[BugResult]) -> bool:
    return all(each.left_out or (each.caught and each.cleared) for each in results)


def _show(results: Sequence[BugResult], seed: int) -> None:
    from tritmark.harness.text.table import plain_table

    screen = console()
    judged = [each for each in results if not each.left_out]
    table = plain_table("Faults reported in public", "kernel", "dimension", "expected", "found", "fixed twin")
    for each in judged:
        bug = each.bug
        expected = f"{' or '.join(bug.verdicts).upper()} by {' or '.join((*bug.guards, *bug.rules))}"
        table.add_row(bug.file, bug.dimension, expected, _words(each.faulty), _words(each.fixed))
    screen.print(table, end="\n\n")
    for kind in dict.fromkeys(each.bug.kind for each in results):
        of_kind = [each for each in results if each.bug.kind == kind]
        reported = ", ".join(dict.fromkeys(name for each in of_kind for name in each.bug.reported))
        screen.print(f"{kind} ({reported})", highlight=False, soft_wrap=True)
        for each in of_kind:
            said = each.left_out or (each.faulty.reason if each.faulty else "did not run")
            screen.print(f"  {each.bug.file}: {visible(said)}", markup=False, highlight=False, soft_wrap=True)
    for each in judged:
        if not each.caught:
            screen.print(f"Not detected: {each.bug.file}: {_words(each.faulty)}", style="bold red", soft_wrap=True)
        if not each.cleared:
            screen.print(
                f"False alarm on the fixed twin: {each.bug.file}: {_words(each.fixed)}",
                style="bold red",
                soft_wrap=True,
            )
    caught, cleared = sum(each.caught for each in judged), sum(each.cleared for each in judged)
    share = f"{int(1000 * caught / len(judged)) / 10:.1f} %" if judged else "none"
    kinds = len({each.bug.kind for each in judged})
    screen.print(
        f"\nFaults detected: {caught} of {len(judged)}, {share}, in {kinds} classes; {cleared} of {len(judged)} fixed "
        f"twins pass; {len(results) - len(judged)} could not be judged here; repeat with --seed {seed}",
        soft_wrap=True,
    )


def _words(found: BugVerdict | None) -> str:
    if found is None:
        return "did not run"
    return " by ".join(filter(None, (found.status.value.upper(), ", ".join((*found.guards, *found.rules)))))
