"""tritmark's own C++17 reference of every op, in the wheel: LIBRARY. Kernels are cross-validated with it if no other
implementation is installed.

reference.cpp of each op is written from the descriptions of ops and formats, for readers: its values are compared, its
times never.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tritmark.harness.cross import CppLibrary
from tritmark.kernels.ops import files

NAME = "tritmark's C++17 reference"
"""Its name in reports."""

_HERE = Path(__file__).parent


def _compiled() -> Path:
    """The library. setup.py builds it as the extension module `library`, but it is not one and is never imported."""
    found = find_spec(f"{__name__}.library")
    return Path(found.origin) if found is not None and found.origin else _HERE / "library.so"


LIBRARY = CppLibrary(str(_compiled()), str(_HERE / "reference.toml"), tuple(map(str, files("reference.toml"))))
"""Its functions as peers; if it was not built, each reports that."""
