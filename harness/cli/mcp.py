"""`tritmark mcp`."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.cli import options


def mcp(out: options.Out = Path("results")) -> None:
    """Serve agents by the Model Context Protocol on standard input and output: check, run, advise, explain, list and
    read_report. Kernels are judged in a sandbox."""
    from tritmark.harness.mcp.server import server

    server(out).run("stdio")
