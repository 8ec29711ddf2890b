"""The changes that were in fact made between this project's variants: made.toml, each quote looked up in the
kernel's story."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tritmark.harness.record import Run

ROOT = Path(__file__).resolve().parents[2]
_MARGIN = re.compile(r"\s*\n \*\s*|\s+")


@dataclass(frozen=True, slots=True)
class Made:
    """From some variants of an op to others."""

    op: str
    """A glob."""
    device: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    story: str
    """The file, from the root of the repository."""
    rules: Mapping[int, str]
    """For the number of each rule whose advice was followed the line of the story that says so."""

    def concerns(self, run: Run) -> bool:
        """The Run is of a variant as it was before."""
        return run.device == self.device and run.variant in self.before and fnmatchcase(run.op, self.op)

    def missing(self, root: Path = ROOT) -> tuple[str, ...]:
        """Quotes that do not stand in the story."""
        told = _MARGIN.sub(" ", (root / self.story).read_text(encoding="utf-8"))
        return tuple(quote for quote in self.rules.values() if quote not in told)


def made() -> tuple[Made, ...]:
    """What made.toml says."""
    rows = tomllib.loads(Path(__file__).with_name("made.toml").read_text(encoding="utf-8"))["made"]
    return tuple(
        Made(
            op=row["op"],
            device=row["device"],
            before=tuple(row["before"]),
            after=tuple(row["after"]),
            story=row["story"],
            rules={int(number): quote for number, quote in row["rules"].items()},
        )
        for row in rows
    )
