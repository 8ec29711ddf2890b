"""Which code of tritmark a process runs. Figures of two versions do not compare, so a fleet runs one."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from tritmark.harness.record.model import Model

_SOURCES = frozenset({".py", ".cu", ".cuh"})
"""Suffixes of files that a clone and its wheel both have, and that decide what is run."""
_SOURCE_PACKAGES = ("harness", "kernels")


class CodeFacts(Model):
    """The code of tritmark in a process."""

    tritmark: str
    """Version of the distribution."""
    sources: str
    """SHA-256 of the Python and CUDA sources."""
    native: str
    """SHA-256 of the compiled modules."""
    platform: str
    """The platform for which modules are compiled, such as cpython-312-x86_64-linux-gnu. Only within one platform can
    compiled modules be equal."""
    compiler: str = ""
    """The compiler and flags of the native code of the worker's devices."""

    def refusal(self, other: CodeFacts) -> str:
        """How the code of `other` differs from this code; "" if it is the same."""
        if other.tritmark != self.tritmark:
            return f"has tritmark {other.tritmark}, and this command has {self.tritmark}"
        if other.sources != self.sources:
            return (
                f"has other sources of tritmark {other.tritmark}: SHA-256 {other.sources[:12]}, and this command has "
                f"{self.sources[:12]}"
            )
        if other.platform == self.platform and other.native != self.native:
            return (
                f"has other compiled modules of tritmark {other.tritmark} for {other.platform}: SHA-256 "
                f"{other.native[:12]}, and others of this fleet have {self.native[:12]}"
            )
        return ""


def code_facts() -> CodeFacts:
    """The code that is installed now, also below a process that began with an earlier one. Reads a thousand files: 20
    to 200 ms."""
    from importlib.metadata import version

    import tritmark

    return CodeFacts(
        tritmark=version("tritmark"),
        sources=_hash(
            (f"{package}/{path.relative_to(folder).as_posix()}", path)
            for package in _SOURCE_PACKAGES
            for folder in _folders(tritmark.__path__, package)
            for path in folder.rglob("*")
            if path.suffix in _SOURCES
        ),
        native=_hash(
            (path.name, path) for folder in _folders(tritmark.__path__, "cython_ext") for path in folder.glob("*.so")
        ),
        platform=str(sysconfig.get_config_var("SOABI")),
    )


def _folders(places: Iterable[str], package: str) -> list[Path]:
    """The folder of the package that is imported: the first one."""
    return [folder for place in places if (folder := Path(place, package)).is_dir()][:1]


def _hash(files: Iterable[tuple[str, Path]]) -> str:
    found = sha256()
    for name, path in sorted(files):
        found.update(f"{name}\n{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
