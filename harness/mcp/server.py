"""The server itself, through the SDK of the protocol (extra `mcp`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import tritmark
from tritmark.harness.errors import MissingPackageError, TritmarkError
from tritmark.harness.extras import install
from tritmark.harness.mcp.tools import AgentTools, describe

LIMIT_S = 900.0
"""Seconds of one command."""
_INSTRUCTIONS = """\
tritmark validates and benchmarks BitNet (ternary) kernels. Call list with what="ops", and new, which writes a correct
kernel. Change it, and call check with dimensions=["accuracy"]. If failing is set, fix the kernel and call check with
that file as inputs. Then call check without dimensions, and follow next until the score does not rise."""


def server(out: Path, limit_s: float = LIMIT_S) -> Any:
    """The server, with Records under `out`. Raises MissingPackageError without the SDK."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ModuleNotFoundError as error:
        raise MissingPackageError("the package mcp is missing", name="mcp", next_step=install("mcp")) from error

    made = MCPServer(
        "tritmark", version=tritmark.__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )  # fmt: skip
    for name, tool in describe(AgentTools(out, limit_s)).items():
        made.add_tool(_telling(tool, ToolError), name=name)
    return made


def _telling(tool: Callable[..., Awaitable[Any]], kind: type[Exception]) -> Callable[..., Awaitable[Any]]:
    """The tool with errors of tritmark as those of the SDK, which shows the text of no other exception."""

    @wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except TritmarkError as error:
            raise kind(str(error)) from error

    return call
