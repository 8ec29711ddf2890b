"""Lint the wording: `python .ci/words.py`; status 1 if anything is found.

Phrases are looked for in Markdown and in the comments and texts of sources, long lines in Markdown alone. Phrases and
files are in pyproject.toml, [tool.tritmark-words].
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)
SPAN = re.compile(r"(`+)(?!`).+?\1(?!`)|\]\([^)\n]*\)|<?https?://\S+")


def settings(path: Path = ROOT / "pyproject.toml") -> dict[str, Any]:
    """The table [tool.tritmark-words]."""
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["tritmark-words"]
    return table


def prose(text: str) -> str:
    """The text with code blocks blanked and each code span and link target turned into one word, lengths kept."""
    for block in (FENCED, INDENTED):
        text = block.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return SPAN.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)


def phrases_in(text: str, phrases: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Each line number with a phrase and what to write. A phrase may run over a line break and a comment's margin."""
    for phrase, better in phrases.items():
        for found in re.finditer(phrase.replace(" ", r"[\s#*]+"), text, re.IGNORECASE):
            yield text.count("\n", 0, found.start()) + 1, f'"{" ".join(found[0].split())}": write {better}'


def long_lines(text: str, width: int) -> Iterator[tuple[int, str]]:
    """Each line number of Markdown with a line that is too long and can be broken; table rows cannot."""
    for number, line in enumerate(text.splitlines(), start=1):
        can_break = " " in re.sub(r"^[\s>]*(?:[-*+] |\d+\. )?", "", line.rstrip())
        if len(line.rstrip()) > width and can_break and not line.lstrip().startswith("|"):
            yield number, f"{len(line.rstrip())} columns: at most {width}"


def lint(root: Path, table: dict[str, Any]) -> list[str]:
    """One line a finding."""
    faults = []
    for path in _paths(root, table["files"]):
        text = prose(path.read_text(encoding="utf-8"))
        found = [*phrases_in(text, table["phrases"]), *long_lines(text, table["width"])]
        faults += [f"{path.relative_to(root)}:{line}: {what}" for line, what in sorted(found)]
    for path in _paths(root, table["sources"]):
        if str(path.relative_to(root)) not in table["literals"]:
            found = sorted(phrases_in(path.read_text(encoding="utf-8"), table["phrases"]))
            faults += [f"{path.relative_to(root)}:{line}: {what}" for line, what in found]
    return faults


def _paths(root: Path, globs: list[str]) -> list[Path]:
    return sorted({path for each in globs for path in root.glob(each) if path.is_file()})


if __name__ == "__main__":
    print(*(result := lint(ROOT, settings())), sep="\n", end="\n" if result else "")
    sys.exit(1 if result else 0)
