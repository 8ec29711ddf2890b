"""`tritmark formats`."""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import FAILED, PASSED

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.formats.examine import Examined

_SIGNS = {"same": "=", "codes": "c", "scales": "s", "shape": "n", "wrong": "X"}
_STYLES = {"same": "green", "wrong": "bold red"}
_MANY = 12
"""Number of faults that are listed."""


def formats(
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON, with every reason.")] = False,
) -> None:
    """Check every format's packer against every unpacker, the original packers' bytes and other projects' packers.

    Fails if a packer is incorrect."""
    from tritmark.harness.cli.problems import tell_problems
    from tritmark.harness.formats.examine import examined
    from tritmark.harness.providers import load

    installed = load()
    found = examined(installed)
    if as_json:
        import json

        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        show(found)
    tell_problems(installed, traceback=False)
    raise typer.Exit(FAILED if found.wrong() else PASSED)


def show(found: Examined) -> None:
    """Print the matrix, the comparison with the originals and the verdict."""
    from tritmark.harness.formats.pairs import Repacked
    from tritmark.harness.text.units import counted
    from tritmark.harness.text.visible import visible

    screen = console()
    screen.print(_matrix(found))
    screen.print(
        "=: the same codes and scales; X: incorrect. Refused, because a value would change: c: codes, s: scales; n: no "
        "shape fits both.\n"
    )
    screen.print(_originals(found))
    unchecked = found.unchecked()
    if unchecked:
        screen.print(
            "unchecked: there are neither original bytes nor another project's packer to compare with, so the byte "
            "order is not judged."
        )
    screen.print()
    wrong, outcomes = found.wrong(), found.outcomes()
    for line in wrong[:_MANY]:
        screen.print(visible(f"INCORRECT: {line}"), style="bold red", soft_wrap=True)
    if len(wrong) > _MANY:
        screen.print(f"and {len(wrong) - _MANY} more; --json lists all")
    same, bad = outcomes[Repacked.SAME], outcomes[Repacked.WRONG]
    files = {each.file for each in found.golden}
    used = {each.file for each in found.golden if each.format in found.formats}
    screen.print(
        f"{'FAIL' if wrong else 'PASS'}: of {counted(outcomes.total(), 'pair')} {same} are identical, "
        f"{outcomes.total() - same - bad} are refused (reasons: --json), {bad} are incorrect. "
        f"{len(used)} of {counted(len(files), 'golden file')} are used. "
        f"The byte order of {len(unchecked)} of {counted(len(found.formats), 'format')} is unchecked."
    )


def _matrix(found: Examined) -> Table:
    from rich.text import Text

    from tritmark.harness.text.table import plain_table

    letters = dict(zip(found.formats, ascii_letters, strict=False))
    table = plain_table(
        "From the format of the row to the format of the column", "", *(letters.get(n, "") for n in found.formats)
    )
    table.padding = (0, 1, 0, 0)
    for column in table.columns:
        column.no_wrap = True
    by_source = {name: [each for each in found.pairs if each.source == name] for name in found.formats}
    for name, row in by_source.items():
        signs = (Text(_SIGNS[each.outcome], style=_STYLES.get(each.outcome, "dim")) for each in row)
        table.add_row(f"{letters.get(name, ' ')} {name}", *signs)
    return table


def _originals(found: Examined) -> Table:
    from tritmark.harness.text.table import plain_table

    unchecked = found.unchecked()
    table = plain_table("Against the originals", "format", "golden vectors", "packers of other projects")
    for name in dict.fromkeys([*found.formats, *(each.format for each in found.golden)]):
        vectors = [each for each in found.golden if each.format == name]
        right = sum(each.why is None for each in vectors)
        text = f"{right} of {len(vectors)} correct" if vectors else "unchecked" if name in unchecked else "none"
        asked = [
            f"not compared, {each.oracle} is {each.missing}"
            if each.missing
            else f"{each.version}: {'differs' if each.why else 'agrees'}"
            for each in found.asked
            if each.format == name
        ]
        table.add_row(name, text, "; ".join(asked) or "none")
    return table
