"""Nothing is decided by the words of a reason, so that they may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritmark import harness

(HERE,) = map(Path, harness.__path__)
LOOKS = {
    "startswith",
    "endswith",
    "find",
    "index",
    "partition",
    "rpartition",
    "search",
    "match",
    "fullmatch",
    "findall",
}


def decisions(source: str) -> Iterator[str]:
    """Comparisons with a reason, and searches in one; whether there is one at all is no matter of words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            looked_at = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKS:
            looked_at = [node.func.value, *node.args]
        else:
            continue
        empty = any(isinstance(each, ast.Constant) and each.value == "" for each in looked_at)
        if not empty and any(isinstance(each, ast.Attribute) and each.attr == "reason" for each in looked_at):
            yield ast.unparse(node)


@pytest.mark.parametrize("module", sorted(HERE.rglob("*.py")), ids=lambda path: str(path.relative_to(HERE)))
def test_no_module_decides_by_the_words_of_a_reason(module: Path) -> None:
    assert list(decisions(module.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("run.accuracy.reason.startswith(CHOSEN)", True),
        ("LACKS not in each.reason", True),
        ("re.search(shows, verdict.reason)", True),
        ("each.reason == 'absent'", True),
        ("each.reason != ''", False),
        ("Counter(each.reason for each in runs)", False),
        ("each.cause in CHOSEN", False),
    ],
)
def test_what_is_looked_for_is_found(source: str, found: bool) -> None:
    assert bool(list(decisions(source))) is found
