"""Messages about other packages that could not be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.cli.console import console

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


def tell_problems(installed: Installed, *, traceback: bool) -> None:
    """Print each problem of another package, with its traceback or the command that shows it."""
    from tritmark.harness.text.visible import visible

    errors = console(stderr=True)
    for problem in installed.problems:
        errors.print(f"tritmark: {visible(str(problem))}", style="red", soft_wrap=True)
        for line in problem.traceback.splitlines() if traceback else ("next: `tritmark doctor` shows the traceback",):
            errors.print(f"    {visible(line)}", soft_wrap=True)
