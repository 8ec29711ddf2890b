"""The lint for words in Markdown: planted faults are reported with their line, honest text passes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / ".ci" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table(words: ModuleType) -> dict[str, Any]:
    """The repository's phrases and width, for one file."""
    found: dict[str, Any] = words.settings()
    return found | {"files": ["*.md"], "pending": []}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("# Title\n\nThe choice hangs on the shape.\n", 3, "depends on"),
        ("Both kernels are timed by\nturns.\n", 1, "interleaved"),
        ("| case | what |\n|---|---|\n| Nobody asked | fails |\n", 3, "no rule"),
        ("- " + "word " * 24 + "word\n", 1, "columns: at most 120"),
        ("See [the page](page.md), " + "word " * 20 + "and `code` here\n", 1, "columns: at most 120"),
    ],
)
def test_a_fault_is_reported(
    words: ModuleType, table: dict[str, Any], tmp_path: Path, text: str, line: int, what: str
) -> None:
    (tmp_path / "a.md").write_text(text)
    (fault,) = words.lint(tmp_path, table)
    assert fault.startswith(f"a.md:{line}: ")
    assert what in fault


@pytest.mark.parametrize(
    "text",
    [
        "The choice depends on the shape, and the kernels are interleaved.\n",
        "```sh\n" + "echo nobody " * 20 + "\n```\n\n    echo " + "whoever " * 20 + "\n",
        "| " + "a cell of a table " * 10 + "|\n",
        "- `" + "a command that cannot be broken " * 5 + "`\n",
        "- [text](https://example.org/" + "long/" * 30 + ")\n",
    ],
)
def test_honest_text_passes(words: ModuleType, table: dict[str, Any], tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert words.lint(tmp_path, table) == []


def test_the_list_of_pending_files_only_shrinks(words: ModuleType, table: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "clean.md").write_text("Clean.\n")
    (tmp_path / "faulty.md").write_text("It hangs on the moment.\n")
    pending = ["clean.md", "faulty.md", "missing.md"]
    missing, clean = words.lint(tmp_path, table | {"pending": pending})
    assert missing.startswith("pending file missing.md does not exist")
    assert clean.startswith("clean.md is clean: remove it from pending")


def test_the_repository_passes(words: ModuleType) -> None:
    assert words.lint(ROOT, words.settings()) == []
