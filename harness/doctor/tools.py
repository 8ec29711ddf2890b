"""Checks of optional programs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tritmark.harness.doctor.check import Check, State


@dataclass(frozen=True, slots=True)
class Tool:
    """A program with several possible names; `get` states how to install it."""

    names: tuple[str, ...]
    use: str
    get: str


ON_PATH = (
    Tool(("git",), "`tritmark gate` and `tritmark history` compare commits", "sudo apt install git"),
    Tool(("ncu",), "`tritmark advise --ncu FILE` reads its CSV", "install Nsight Compute, a part of the CUDA toolkit"),
    Tool(
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        "tests show the report in a browser",
        "sudo apt install chromium",
    ),
)
READERS = {
    "objdump": "`tritmark advise` reads the CPU's instructions",
    "llvm-mca": "`tritmark advise` distinguishes dependency stalls from busy units",
    "nvdisasm": "`tritmark advise` reads the GPU's instructions",
}
"""Programs that read compiled code, with their use."""


def tools() -> list[Check]:
    """A check for each program."""
    return [*map(_on_path, ON_PATH), *(_reader(name, use) for name, use in READERS.items())]


def _on_path(tool: Tool) -> Check:
    path = next(filter(None, map(shutil.which, tool.names)), None)
    return _check(tool.names[0], path, tool.use, tool.get)


def _reader(name: str, use: str) -> Check:
    """A program that advice also looks for outside PATH."""
    from tritmark.harness.disassembly.tools import NEXT, ToolError, find

    path: Path | None
    try:
        path = find(name)
    except ToolError:
        path = None
    return _check(name, path, use, NEXT[name])


def _check(name: str, path: str | Path | None, use: str, get: str) -> Check:
    if path is None:
        return Check(name, State.ABSENT, "not found", use, get)
    return Check(name, State.OK, str(path), use)
