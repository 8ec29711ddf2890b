"""Copies of CUDA sources with a fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tritmark.kernels.cuda.kernel import ROOM


def plant(folder: Path, sources: Iterable[str], file: str, right: str, wrong: str) -> None:
    """Copy those sources to a folder with their paths in kernels/. In the source `file` replace `right` by
    `wrong`; if `right` is "" there is no fault."""
    for name in sources:
        text = (ROOM / name).read_text(encoding="utf-8")
        if name == file:
            assert right in text
            text = text.replace(right, wrong) if right else text
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
