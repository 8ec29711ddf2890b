"""What contributors work with says the same wherever it is said twice: versions, commands, markers, widths."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRE_COMMIT = (ROOT / ".pre-commit-config.yaml").read_text()
TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini")

TOOLS = ("clang-format", "mypy", "ruff")
HOOKS = {"ruff-pre-commit": "ruff", "mirrors-clang-format": "clang-format", "mirrors-mypy": "mypy"}


def pinned(requirements: list[str]) -> dict[str, str]:
    """The tools among them, each with its version; one that is not pinned has none."""
    found = (re.match(r"([\w-]+)(?:==(\S+))?", each) for each in requirements)
    return {match[1]: match[2] or "" for match in found if match and match[1] in TOOLS}


def hooks(text: str) -> dict[str, str]:
    return {HOOKS[name]: version for name, version in re.findall(r"repo: \S+/([\w-]+)\n +rev: v(\S+)", text)}


def test_tools_have_one_version() -> None:
    tox = pinned([each for name in ("lint", "types") for each in TOX[f"testenv:{name}"]["deps"].splitlines()])
    assert set(tox) == set(TOOLS)
    assert all(tox.values()), "not pinned"
    assert hooks(PRE_COMMIT) == tox
    assert pinned(PROJECT["project"]["optional-dependencies"]["dev"]) == tox


def test_another_version_is_seen() -> None:
    assert pinned(["ruff>=0.8", "mypy==1.0", "numpy==2"]) == {"ruff": "", "mypy": "1.0"}
    changed = re.sub(r"(mirrors-mypy\n +rev: v)\S+", r"\g<1>1.0", PRE_COMMIT)
    assert hooks(changed) == {**hooks(PRE_COMMIT), "mypy": "1.0"}


def test_mypy_is_called_alike() -> None:
    called = [" ".join(args.split(", ")) for args in re.findall(r"args: \[--python-executable=\S+, (.*)\]", PRE_COMMIT)]
    assert [f"mypy {args}" for args in called] == TOX["testenv:types"]["commands"].split("\n")[1:]


def test_markers_that_tox_selects_by_are_registered() -> None:
    registered = {each.partition(":")[0] for each in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    expressions = [
        each for name in TOX.sections() for each in re.findall(r' -m ("[^"]*"|\w+)', TOX[name].get("commands", ""))
    ]
    chosen = {word for each in expressions for word in each.strip('"').split()} - {"pytest", "pip", "tritmark"}
    assert chosen >= {"cuda", "timing", "long", "interpreter"}
    assert chosen - {"and", "or", "not"} <= registered


@pytest.mark.parametrize("path", [".clang-format", "kernels/cuda/simulator/.clang-format", ".editorconfig"])
def test_lines_are_as_long_in_c_as_in_python(path: str) -> None:
    assert re.findall(r"^(?:ColumnLimit:|max_line_length =) (\d+)", (ROOT / path).read_text(), re.MULTILINE) == [
        str(PROJECT["tool"]["ruff"]["line-length"])
    ]


def test_the_workflow_brings_every_python_and_runs_everything() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.search(r"^      - run: \.ci/run$", text, re.MULTILINE)
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    numbers = re.findall(r"\bpy(3\d+)\b", TOX["tox"]["env_list"])
    assert sorted(numbers) == sorted(f"3{number}" for number in re.findall(r"^ +3\.(\d+)$", text, re.MULTILINE))
