"""Runs of the benchmarks are kept, and compare.py finds a slow-down of 2 in a kernel, but none in the same build."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from earlier_builds import module

from tritmark.kernels.native import cpu

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPARE = HERE / "compare.py"
SCRIPT = runpy.run_path(str(COMPARE), run_name="compare")
SECONDS = 1e-5
CASE = "test_vector_op[i2s_quantize-none-int8-scalar-n65536]"
SHORT = ("--benchmark-max-time=0.05", "--benchmark-min-rounds=9")
OP = "i2s_quantize"
TWICE = """
from dataclasses import replace

from tritmark.kernels.dispatch import dispatch

select = dispatch.select


class Twice:
    def __init__(self, launch):
        self._launch = launch

    def __getattr__(self, name):
        return getattr(self._launch, name)

    def run(self):
        self._launch.run()
        self._launch.run()


def slower(*arguments, **more):
    variant = select(*arguments, **more)
    return replace(variant, bind=lambda *bound: Twice(variant.bind(*bound)))


dispatch.select = slower
"""
"""A plugin of pytest: every kernel computes twice."""


@pytest.mark.timing
def test_a_run_is_kept_with_what_ran(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{HERE / 'test_ops.py'}::{CASE}"]
    storage = f"--benchmark-storage=file://{tmp_path}"
    done = subprocess.run(
        [*command, storage, *SHORT, "--benchmark-autosave"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.rglob("*.json")
    (told,) = json.loads(kept.read_text())["benchmarks"]
    assert told["extra_info"]["variant"] == "scalar"
    assert told["extra_info"]["bytes"] == 5 * 65536


@pytest.mark.timing
def test_runs_are_kept_where_git_ignores_them(pytestconfig: pytest.Config) -> None:
    chosen = pytestconfig.getoption("benchmark_storage")
    if chosen != f"file://{ROOT / 'results' / 'benchmarks'}":
        pytest.skip(f"this run keeps its own in {chosen}")
    probe = "results/benchmarks/Linux/0001.json"
    assert not subprocess.run(["git", "check-ignore", "-q", probe], cwd=ROOT, check=False).returncode


# Two builds


def compared(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(COMPARE), "--op", OP, *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
@pytest.mark.timing
def test_the_same_build_is_not_slower() -> None:
    done = compared()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1.41x slower" in done.stdout


@pytest.mark.nightly
@pytest.mark.timing
@pytest.mark.long
def test_a_kernel_that_takes_twice_as_long_is_slower(tmp_path: Path) -> None:
    (tmp_path / "planted_twice.py").write_text(TWICE)
    before = tmp_path / "before"
    before.write_text(f'#!/bin/sh\nunset PYTEST_ADDOPTS\nexec {sys.executable} "$@"\n')
    before.chmod(0o755)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = compared("--before", str(before), PYTEST_ADDOPTS="-p planted_twice", PYTHONPATH=path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"slower: suites/performance/test_ops.py::{CASE}: " in done.stdout


def test_an_earlier_build_that_does_not_run_is_reported(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.write_text("#!/bin/sh\necho no tritmark here\nexit 1\n")
    before.chmod(0o755)
    done = compared("--before", str(before))
    assert done.returncode == 2
    assert "cannot be compared" in done.stderr
    assert "no tritmark here" in done.stderr


def test_the_ci_builds_the_commit_where_the_branch_began(tmp_path: Path) -> None:
    """With stand-ins for Python and tox, which print what they are given."""

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", *identity, "-C", str(clone), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    clone, programs = tmp_path / "clone", tmp_path / "programs"
    for folder in (clone / ".ci", programs):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "benchmark", clone / ".ci")
    (programs / "python3").write_text(
        'mkdir -p "$3/bin" && printf \'#!/bin/sh\\ncat "$3/version"\\n\' > "$3/bin/pip" && chmod +x "$3/bin/pip"\n'
    )
    (programs / "tox").write_text('echo tox "$@"; exit 5\n')
    for program in programs.iterdir():
        program.write_text("#!/bin/sh\n" + program.read_text())
        program.chmod(0o755)

    def commit(version: str) -> None:
        (clone / "version").write_text(version)
        git("add", ".")
        git("commit", "-qm", version)

    git("init", "-q", "-b", "main")
    commit("earlier")
    git("switch", "-q", "-c", "change")
    commit("changed")
    git("switch", "-q", "main")
    commit("later")
    git("switch", "-q", "change")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

    def step(branch: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [".ci/benchmark", branch, *options]
        return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)

    done = step("main", "--op", OP)
    assert done.returncode == 5, done.stderr
    assert re.fullmatch(rf"earliertox -e benchmark -- --before \S+/venv/bin/python --op {OP}\n", done.stdout)
    git("switch", "-q", "--orphan", "unrelated")
    git("commit", "-qm", "unrelated", "--allow-empty")
    git("checkout", "-q", "main", "--", ".ci/benchmark")
    refused = step("main")
    assert (refused.returncode, "no common commit" in refused.stderr) == (2, True)
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert '- run: .ci/benchmark "origin/$GITHUB_BASE_REF"' in workflow


# The rule, with made-up times

Times = Sequence[Mapping[str, float]]


def verdict(*rounds: Times) -> Any:
    """The verdict of rounds that repeat the last one: each is the ratios of its three runs to SECONDS."""
    asked: list[Sequence[str]] = []

    def round(names: Sequence[str]) -> Any:
        times = rounds[min(len(asked), len(rounds) - 1)]
        asked.append(names)
        first, again, latest = ({name: SECONDS * each for name, each in run.items()} for run in times)
        run = SCRIPT["Run"]
        slower = frozenset(name for name in latest if latest[name] > SCRIPT["LIMIT"] * again.get(name, latest[name]))
        return run(first), run(again), run(latest, slower)

    found = SCRIPT["settled"](round)
    assert asked[0] == []
    return found, len(asked)


@pytest.mark.parametrize(
    ("rounds", "same", "slower", "opened", "count"),
    [
        pytest.param([[1, 1, 1]], 1, 0, 0, 1, id="no change"),
        pytest.param([[1, 1.1, 1.3]], 1, 0, 0, 1, id="within the limit"),
        pytest.param([[1, 1, 0.4]], 1, 0, 0, 1, id="faster"),
        pytest.param([[1, 1, 2]], 0, 1, 0, 3, id="twice as slow"),
        pytest.param([[1, 1, 1.5]], 0, 1, 0, 3, id="slower than the limit"),
        pytest.param([[1, 1, 3], [1, 1, 3], [1, 1, 1]], 1, 0, 0, 3, id="load in two rounds"),
        pytest.param([[1, 1.3, 3], [1, 1, 1]], 1, 0, 0, 2, id="a noisy round that looks slower"),
        pytest.param([[2, 1, 1], [1, 1, 2]], 0, 1, 0, 4, id="a noisy round that looks the same"),
        pytest.param([[1, 1.5, 1]], 0, 0, 1, 8, id="always noisy"),
        pytest.param([[1, 0.7, 2]], 0, 0, 1, 8, id="always noisy and slower"),
    ],
)
def test_what_settles_a_benchmark(
    rounds: Sequence[Sequence[float]], same: int, slower: int, opened: int, count: int
) -> None:
    found, ran = verdict(*([{"a": each} for each in times] for times in rounds))
    assert (len(found.same), len(found.slower), len(found.open), ran) == (same, slower, opened, count)
    assert SCRIPT["report"](found) == (1 if slower else 3 if opened else 0)


def test_one_slower_benchmark_among_others_is_enough() -> None:
    found, ran = verdict([{"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}])
    assert (found.same, list(found.slower), ran) == ({"a"}, ["b"], 3)
    assert found.slower["b"] == pytest.approx(2)


def test_new_and_removed_benchmarks_are_not_compared() -> None:
    found, _ = verdict([{"a": 1, "removed": 1}, {"a": 1, "removed": 1}, {"a": 1, "new": 9}])
    assert (found.same, found.slower, found.open) == ({"a"}, {}, set())
    with pytest.raises(SCRIPT["CannotCompareError"], match="in common"):
        verdict([{"removed": 1}, {"removed": 1}, {"new": 1}])


def test_names_are_read_from_what_pytest_benchmark_prints() -> None:
    name = "suites/performance/test_ops.py::test_vector_op[i2s_quantize-none-int8-avx2-n65536]"
    printed = (
        f"Performance has regressed:\n\t{name} (0002_run2) - Field 'min' has failed PercentageRegressionCheck: "
        "101.203947810 > 41.000000000\n"
    )
    assert SCRIPT["_slower"](printed) == {name}
    assert SCRIPT["_slower"]("44 passed") == frozenset()


def test_benchmarks_find_modules_under_the_names_of_earlier_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module("tritmark.kernels.native.cpu", "tritmark.kernels.cpu") is cpu
    assert module("tritmark.kernels.nowhere.cpu", "tritmark.kernels.native.cpu") is cpu
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        module("tritmark.kernels.nowhere")
    (tmp_path / "needs_another.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        module("needs_another", "tritmark.kernels.native.cpu")
