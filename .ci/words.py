"""Lint the wording and the line length of Markdown prose: `python .ci/words.py`; status 1 if anything is found.

The phrases, the files and the files not yet edited (`pending`) are in pyproject.toml, [tool.tritmark-words].
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


def findings(text: str, phrases: dict[str, str], width: int) -> Iterator[tuple[int, str]]:
    """Each line number with what is wrong there. A phrase may run over a line break, a table row may be long."""
    text = prose(text)
    for phrase, better in phrases.items():
        for found in re.finditer(phrase.replace(" ", r"\s+"), text, re.IGNORECASE):
            yield text.count("\n", 0, found.start()) + 1, f'"{" ".join(found[0].split())}": write {better}'
    for number, line in enumerate(text.splitlines(), start=1):
        can_break = " " in re.sub(r"^[\s>]*(?:[-*+] |\d+\. )?", "", line.rstrip())
        if len(line.rstrip()) > width and can_break and not line.lstrip().startswith("|"):
            yield number, f"{len(line.rstrip())} columns: at most {width}"


def lint(root: Path, table: dict[str, Any]) -> list[str]:
    """One line a finding. A pending file is not checked, but it must exist and have findings."""
    paths = sorted({path for each in table["files"] for path in root.glob(each)})
    pages = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}
    faults = [f"pending file {name} does not exist: remove it" for name in table["pending"] if name not in pages]
    for name, text in pages.items():
        found = sorted(findings(text, table["phrases"], table["width"]))
        if name not in table["pending"]:
            faults += [f"{name}:{line}: {what}" for line, what in found]
        elif not found:
            faults.append(f"{name} is clean: remove it from pending in pyproject.toml, [tool.tritmark-words]")
    return faults


if __name__ == "__main__":
    print(*(result := lint(ROOT, settings())), sep="\n", end="\n" if result else "")
    sys.exit(1 if result else 0)
