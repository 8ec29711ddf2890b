"""The lint for words: planted faults are reported with their line, honest text passes."""

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
    return found | {"files": ["*.md"], "sources": ["*.py", "*.c"], "literals": ["values.py"]}


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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""It hangs\n    on the moment."""\n'),
        ("a.py", "# Timed by\n# turns.\n"),
        ("a.c", "/* Timed by\n * turns. */\n"),
    ],
)
def test_a_phrase_in_a_source_is_reported(
    words: ModuleType, table: dict[str, Any], tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    (fault,) = words.lint(tmp_path, table)
    assert fault.startswith(f"{name}:1: ")


def test_values_of_a_source_and_its_long_lines_pass(words: ModuleType, table: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "values.py").write_text('BASIS = "by turns"\n')
    (tmp_path / "long.py").write_text(f"x = {'1 + ' * 50}1\n")
    assert words.lint(tmp_path, table) == []


@pytest.mark.nightly
def test_the_repository_passes(words: ModuleType) -> None:
    assert words.lint(ROOT, words.settings()) == []
