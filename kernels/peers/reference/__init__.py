"""tritmark's own C++17 reference of every op, in the wheel: LIBRARY, with which kernels are cross-validated where no
other implementation is installed.

It is no peer to be faster than: reference.cpp is written from the descriptions of ops and formats to be read, so its
values are compared and its time never is.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tritmark.harness.cross import CppLibrary

NAME = "tritmark's C++17 reference"
"""What reports call it, as its description says."""

_HERE = Path(__file__).parent


def _compiled() -> Path:
    """The library, which setup.py builds as the extension module `library`: it is none, and nobody imports it."""
    found = find_spec(f"{__name__}.library")
    return Path(found.origin) if found is not None and found.origin else _HERE / "library.so"


LIBRARY = CppLibrary(str(_compiled()), str(_HERE / "reference.toml"))
"""Its functions as peers; where it was not built, each says so."""
