"""What is said of other packages that could not be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritmark.harness.cli.console import console

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed


def tell_problems(installed: Installed, *, traceback: bool) -> None:
    """What other packages bring and could not be taken; with where it failed, or the command that says that."""
    from tritmark.harness.text.visible import visible

    errors = console(stderr=True)
    for problem in installed.problems:
        errors.print(f"tritmark: {visible(str(problem))}", style="red", soft_wrap=True)
        for line in problem.traceback.splitlines() if traceback else ("`tritmark doctor` says where it failed",):
            errors.print(f"    {visible(line)}", soft_wrap=True)
