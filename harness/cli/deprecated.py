"""Deprecated names of commands, which still work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.once import Once


def alias(app: typer.Typer, old: str, new: str, command: Callable[..., None]) -> None:
    """Keep a command under its deprecated name: hidden, with a line on the error stream that names the new one."""

    class Deprecated(Once):
        """Reports the new name, then runs."""

        def invoke(self, ctx: Any) -> Any:
            """See click.Command."""
            text = f"tritmark {old} is deprecated: use tritmark {new}"
            console(stderr=True).print(text, style="yellow", soft_wrap=True)
            return super().invoke(ctx)

    app.command(old.rpartition(" ")[2], cls=Deprecated, hidden=True, help=f"Deprecated: use `tritmark {new}`.")(command)
