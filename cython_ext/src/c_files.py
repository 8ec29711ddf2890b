"""Which C files belong to what: a module's folder has those that are compiled into it, and its fuzz drivers."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parent
_DRIVER = "fuzz*.c"


def compiled(folder: Path) -> list[Path]:
    """The C files of a module, below its folder, without fuzz drivers."""
    return sorted({*folder.rglob("*.c")} - {*folder.glob(_DRIVER)})


def drivers(sources: Path = SOURCES) -> dict[str, Path]:
    """The fuzz drivers by name: a module has `fuzz.c`, named after its folder, and `fuzz_NAME.c` for other calls."""
    found = {path.parent.name + path.stem.removeprefix("fuzz"): path for path in sources.glob(f"*/{_DRIVER}")}
    return dict(sorted(found.items()))
