"""The commands of the command line, those of groups too, by their whole names, such as "tune prefetch"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from tritmark.harness import cli

COMMAND: Any = typer.main.get_command(cli.app)


def _every(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield before + name, command
        if is_group(command):
            yield from _every(command, f"{before}{name} ")


def is_group(command: Any) -> bool:
    return hasattr(command, "commands")


LISTED = {name: command for name, command in _every(COMMAND) if not command.hidden}
HIDDEN = {name: command for name, command in _every(COMMAND) if command.hidden}


def split(words: list[str]) -> tuple[str, list[str]]:
    """The name of the command that the words begin with, hidden or not, and the words after it; "" where there is
    none."""
    for count in range(len(words), 0, -1):
        if (name := " ".join(words[:count])) in LISTED or name in HIDDEN:
            return name, words[count:]
    return "", words


def parsed(words: list[str]) -> Any:
    """The context of the words' command, as the command line itself parses it; nothing runs. Raises what bad usage
    raises."""
    name, rest = split(words)
    command, context = COMMAND, COMMAND.make_context("tritmark", list(words))
    *groups, last = name.split()
    for place, group in enumerate(groups, start=1):
        command = command.commands[group]
        context = command.make_context(group, words[place:], parent=context)
    return command.commands[last].make_context(last, rest, parent=context)
