"""Copies of CUDA sources with a fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tritmark.kernels.cuda.driver.compile import local_sources
from tritmark.kernels.cuda.kernel import ROOM


def plant(folder: Path, sources: Iterable[str], file: str, right: str, wrong: str) -> None:
    """Copy those sources, and what they include, to a folder with their paths in kernels/. In the source `file` replace
    `right` by `wrong`; if `right` is "" there is no fault."""
    texts: dict[str, str] = {}
    for name in sources:
        found = local_sources(ROOM / name)
        top = (ROOM / name).parents[len(next(iter(found)).parts) - 1]
        texts |= {(top / part).relative_to(ROOM).as_posix(): text for part, text in found.items()}
    if right:
        assert right in texts[file]
        texts[file] = texts[file].replace(right, wrong)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def source_of(op: str, file: str) -> str:
    """The path in kernels/ of a file of the op, or of one that ops share."""
    return next(name for name in (f"{op}/{file}", f"cuda/tiles/{file}") if (ROOM / name).is_file())
