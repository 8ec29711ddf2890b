"""An invocation that makes a Record: its seed, its progress, and its message if it is interrupted."""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

import typer

from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import INTERRUPTED
from tritmark.harness.cli.problems import tell_problems

if TYPE_CHECKING:
    from tritmark.harness.judge.request import Request
    from tritmark.harness.providers import Installed
    from tritmark.harness.record import Record
    from tritmark.harness.store import Partial, Store


def seed_of(given: int | None, store: Store, resume: str | None) -> int:
    """The given seed, that of the resumed run, or a drawn one, so that no kernel can know the data."""
    if given is not None:
        return given
    if resume is None:
        return secrets.randbits(32)
    with store.resume(resume) as partial:
        return partial.header.options.seed


def executed(installed: Installed, request: Request, store: Store, resume: str | None) -> Record:
    """Execute the request, with progress on the error stream. An interruption ends the command, with a message that
    states how to continue."""
    from tritmark.harness.cli.progress import Terminal
    from tritmark.harness.judge.runner import execute

    tell_problems(installed, traceback=False)
    terminal = Terminal(console(stderr=True))
    try:
        with terminal:
            record, _ = execute(installed, request, store, terminal, resume)
    except KeyboardInterrupt:
        for reported in terminal.failures:
            console(stderr=True).print(reported, style="red", soft_wrap=True)
        _interrupted(request, terminal.partial)
        raise typer.Exit(INTERRUPTED) from None
    return record


def _interrupted(request: Request, partial: Partial | None) -> None:
    errors = console(stderr=True)
    if partial is None:
        errors.print("Interrupted before anything was finished.")
        return
    arguments = [word for word in request.command if word not in {"--resume", partial.header.id}]
    command = shlex.join([*arguments, "--resume", partial.header.id])
    done = len(partial.finished_runs()) + len(partial.finished_layers())
    errors.print(f"Interrupted; {done} finished and kept. Continue with:\n  {command}", soft_wrap=True)
