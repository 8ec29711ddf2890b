"""What contributors work with says the same wherever it is said twice: versions, commands, markers, widths."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import textwrap
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
    chosen = {word for each in expressions for word in re.findall(r"\w+", each)} - {"pytest", "pip", "tritmark"}
    assert chosen >= {"cuda", "timing", "long", "interpreter", "nightly"}
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
    environments = re.split(r",\s*", TOX["tox"]["env_list"])
    assert "py" in environments
    first = PROJECT["project"]["requires-python"].removeprefix(">=3.")
    numbers = [f"3{first}", *re.findall(r"\bpy(3\d+)\b", TOX["tox"]["env_list"])]
    assert sorted(numbers) == sorted(f"3{number}" for number in re.findall(r"^ +3\.(\d+)$", text, re.MULTILINE))


def test_the_night_runs_what_ci_leaves_out() -> None:
    text = (ROOT / ".github/workflows/nightly.yml").read_text()
    (listed,) = re.findall(r"env:\n((?: +- \S+\n)+)", text)
    sections = [name.removeprefix("testenv:") for name in TOX.sections() if name.startswith("testenv:nightly")]
    by_day = TOX["tox"]["env_list"].replace(",", " ").split()
    whole = {"asv", "pycuda", "wheel"}
    assert not whole & set(by_day)
    assert sorted(re.findall(r"- (\S+)", listed)) == sorted({*whole, *(e for name in sections for e in expanded(name))})


SAMPLED = re.compile(r'\{posargs:(?:-m "[^"]*")? ?--sample \d+ ?')
"""What CI adds to an environment's command."""


@pytest.mark.parametrize("name", ["peers", "torch", "report", "sanitize"])
def test_the_night_runs_the_same_command_without_a_sample(name: str) -> None:
    *_, by_day = TOX[f"testenv:{name}"]["commands"].strip().split("\n")
    *_, by_night = TOX[f"testenv:nightly-{name}"]["commands"].strip().split("\n")
    assert "--sample" not in by_night
    assert SAMPLED.sub("{posargs", by_day) == by_night


def test_what_is_sampled_or_leaves_out_nightly_tests_has_an_environment_of_the_night() -> None:
    names = [name.removeprefix("testenv:") for name in TOX.sections() if name.startswith("testenv:")]
    cut = {name for name in names if re.search("--sample|not nightly", TOX[f"testenv:{name}"].get("commands", ""))}
    assert cut >= {"timing", "cuda", "numerics", "peers", "torch", "report", "sanitize"}
    assert {f"nightly-{name}" for name in cut} <= {each for name in names for each in expanded(name)}
    assert "--sample" in TOX["testenv"]["commands"]
    assert "nightly" in names


def expanded(name: str) -> list[str]:
    """The environments of a section's name with one list in braces, or none."""
    before, brace, rest = name.partition("{")
    inner, _, after = rest.partition("}")
    return [f"{before}{each}{after}" for each in inner.split(",")] if brace else [name]


IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment in which these are programs."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_branch_without_a_common_commit_is_no_slower_kernel(tmp_path: Path) -> None:
    environment = programs(tmp_path / "bin", tritmark='echo "gated $*"')
    folder = tmp_path / "repository"
    for words in (
        ("init", "-q", "-b", "main", str(folder)),
        *(
            ("-C", str(folder), *IDENTITY, *each)
            for each in (
                ("commit", "-q", "--allow-empty", "-m", "first"),
                ("switch", "-q", "--orphan", "apart"),
                ("commit", "-q", "--allow-empty", "-m", "apart"),
                ("branch", "here"),
            )
        ),
    ):
        subprocess.run(["git", *words], check=True)

    def gate(branch: str) -> tuple[int, str]:
        done = subprocess.run(
            [ROOT / ".ci/gate", branch], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    for branch in ("main", "deleted"):
        status, text = gate(branch)
        assert status == 2
        assert f"HEAD and {branch} have no common commit here; next: fetch the whole history" in text
        assert "gated" not in text
    status, text = gate("here")
    assert (status, re.sub(r"[0-9a-f]{40}", "BASE", text)) == (0, "gated gate BASE HEAD --format github\n")


HISTORY = (ROOT / ".github/workflows/history.yml").read_text()


@pytest.mark.parametrize(
    ("commits", "status", "expected"), [("a\n", 0, 0), ("a\n", 2, 0), ("a\n", 1, 1), ("a\n", 130, 1), ("", 1, 0)]
)
def test_a_benchmark_that_fails_loses_no_results_of_others(
    commits: str, status: int, expected: int, tmp_path: Path
) -> None:
    (step,) = re.findall(r"- run: (if .*asv run.*)", HISTORY)
    (tmp_path / "commits.txt").write_text(commits)
    environment = programs(tmp_path / "bin", asv=f"exit {status}")
    done = subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == expected


@pytest.mark.parametrize(("commits", "changed", "expected"), [("", "", 0), ("a\n", "", 1), ("a\n", " M a", 0)])
def test_commits_without_results_are_an_error(commits: str, changed: str, expected: int, tmp_path: Path) -> None:
    step = textwrap.dedent(re.findall(r"^        run: \|\n((?: {10}.*\n?)+)", HISTORY, re.MULTILINE)[-1])
    assert step.rstrip().endswith('$GITHUB_REF_NAME"')
    (tmp_path / "commits.txt").write_text(commits)
    log = tmp_path / "log"
    git = f'case "$1" in status) echo "{changed}" | grep . ;; *) echo "git $*" >> {log} ;; esac; true'
    environment = programs(tmp_path / "bin", git=git, gh=f'echo "gh $*" >> {log}') | {
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_REF_NAME": "main",
    }
    done = subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == expected
    pushed = log.read_text().splitlines()[-2:] if log.exists() else []
    assert pushed == (["git push origin history-7-2", "gh pr create --fill --base main"] if changed else [])
