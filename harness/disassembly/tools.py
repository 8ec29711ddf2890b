"""The tools that read compiled code: finds them, reports their versions and runs them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

LIMIT_S = 20.0
"""nvdisasm takes half a second for the largest of this package's binaries."""

NEXT = {
    "nvdisasm": "pip install nvidia-cuda-nvdisasm, or install the CUDA toolkit",
    "objdump": "install binutils (apt install binutils)",
    "llvm-mca": "install LLVM (apt install llvm)",
}
"""How to install each tool."""

_VERSION = {"nvdisasm": r"V(\d[\d.]*)", "objdump": r"(\d+\.\d[\d.]*)", "llvm-mca": r"version (\d[\d.]*)"}


class ToolError(Exception):
    """A tool is not installed, or failed. The text states the cause and the next step."""


@cache
def find(tool: str) -> Path:
    """The path of the program. Searches, in order: the toolkit in CUDA_HOME or CUDA_PATH, PATH, /usr/local/cuda, and
    packages from PyPI. Raises ToolError."""
    for candidate in _candidates(tool):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise ToolError(f"{tool} was not found; next: {NEXT[tool]}")


def _candidates(tool: str) -> Iterator[Path]:
    if tool == "nvdisasm":
        yield from (
            Path(folder) / "bin" / tool
            for name in ("CUDA_HOME", "CUDA_PATH")
            if (folder := os.environ.get(name, "").strip())
        )
    on_path = shutil.which(tool)
    if on_path:
        yield Path(on_path)
    if tool == "nvdisasm":
        yield Path("/usr/local/cuda/bin") / tool
        from importlib.util import find_spec

        spec = find_spec("nvidia")
        for folder in spec.submodule_search_locations or () if spec else ():
            yield from sorted(Path(folder).glob(f"cu[0-9]*/bin/{tool}"), reverse=True)
    if tool == "llvm-mca":
        # Debian's llvm-N packages, if the package with the default name is not installed
        yield from sorted(Path("/usr/lib").glob(f"llvm-*/bin/{tool}"), reverse=True)


@cache
def version(tool: str) -> str:
    """Name and version, such as "objdump 2.40". Raises ToolError."""
    said = run(tool, ["--version"])
    found = re.search(_VERSION[tool], said)
    return f"{tool} {found[1]}" if found else tool


def run(tool: str, arguments: Sequence[str], text: str | None = None) -> str:
    """Run the tool with `text` as its input. Returns its standard output. Raises ToolError."""
    import subprocess

    path = find(tool)
    try:
        done = subprocess.run(
            [str(path), *arguments],
            input=b"" if text is None else text.encode(),
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as why:
        raise ToolError(f"{path} cannot be run ({why}); next: {NEXT[tool]}") from None
    except subprocess.TimeoutExpired:
        raise ToolError(f"{path} took over {LIMIT_S:.0f} s; next: run it on the file by hand") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ToolError(f"{path} failed: {words[0] if words else f'exit status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
