"""The gate where git, pip, the compiler or the session is at fault, and not a commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import gate_sites
import pytest
from gate_requests import Silent
from hostile_session import PLAIN, USER, as_root, session

from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.gate import build
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.json_rpc import Child
from tritmark.harness.gate.opened import BuildError
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.run import GateRequest, run
from tritmark.harness.gate.verdict import GateLimits

pytestmark = pytest.mark.long


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "gated.py").write_text(gate_sites.source(one="lambda y: None"))
    (folder / "backend.py").write_text(gate_sites.BACKEND)
    (folder / "pyproject.toml").write_text(gate_sites.PROJECT)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "Go on")
    return folder


@pytest.mark.nightly
@as_root
def test_a_checkout_of_another_user(repository: Path) -> None:
    for path in (repository, *repository.rglob("*")):
        os.chown(path, USER, USER)
    ended = session(repository, "gate", "HEAD~1", "HEAD", HOME=str(repository))
    ended.must_name("dubious ownership", "safe.directory")


@pytest.mark.nightly
def test_a_checkout_that_git_does_not_open(repository: Path) -> None:
    (repository / ".git/config").write_text("[core\n")
    ended = session(repository, "gate", "HEAD~1", "HEAD", HOME=str(repository))
    ended.must_name("bad config line", "next: ")


@pytest.mark.nightly
def test_a_shallow_clone(repository: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", repository.as_uri(), shallow], check=True)
    session(shallow, "gate", "HEAD~1", "HEAD").must_name("shallow clone", "next: git fetch --unshallow")
    told = session(shallow, "gate", "nonesuch", "HEAD")
    told.must_name("nonesuch", "shallow clone")


def test_without_git(repository: Path) -> None:
    ended = session(repository, "gate", "HEAD~1", "HEAD", before="export PATH=/nonexistent")
    ended.must_name("git cannot be run", "next: install git")


def test_without_pip(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(BadEnvironmentError, match=r"has no pip.*next: .* -m ensurepip"):
        build.built("HEAD", folder=repository)


def test_without_a_compiler_and_without_a_working_build(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "broken").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Break")
    with pytest.raises(BuildError, match="the compiler says no"):
        build.built("HEAD", folder=repository)
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    expected = r"the compiler no-such-compiler is not installed; next: install it \(.*apt install g\+\+\), or set CC"
    with pytest.raises(BadEnvironmentError, match=f"does not build, and {expected}"):
        build.built("HEAD", folder=repository)
    # Cython is compiled for certain, so its build does not begin.
    (repository / "fast.pyx").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Add Cython")
    with pytest.raises(BadEnvironmentError, match=f"must be compiled, and {expected}"):
        build.built("HEAD", lambda making: pytest.fail("it begins"), repository)


@pytest.mark.nightly
def test_what_pip_is_told_of_other_places_does_not_count(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_USER": "1", "PIP_TARGET": "/nonexistent", "PIP_REQUIRE_VIRTUALENV": "1"}.items():
        monkeypatch.setenv(name, value)
    assert (build.built("HEAD", folder=repository).site / "gated.py").is_file()


def test_a_compiler_of_two_words_is_asked_for_its_own_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """ccache's version is not that of the compiler behind it."""
    monkeypatch.setenv("CC", "cc")
    version = build._compiler().splitlines()[1]
    monkeypatch.setenv("CC", "env LANG=C cc")
    assert build._compiler().splitlines()[:2] == ["env LANG=C cc", version]


@pytest.mark.parametrize("folder", ["belongs to another user", "cannot be stored"])
def test_a_cache_that_is_not_ones_own(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    if "another" in folder:
        monkeypatch.setattr(os, "geteuid", lambda: USER)
    else:
        (tmp_path / "cache").touch()
    with pytest.raises(BadEnvironmentError, match=rf"{folder}.*next: set TRITMARK_CACHE"):
        build.built("HEAD", folder=repository)


@pytest.mark.nightly
def test_what_a_sitecustomize_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text("print('welcome', flush=True)\n")
    monkeypatch.syspath_prepend(tmp_path / "hook")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    sites = [
        gate_sites.site(
            tmp_path / name, gate_sites.source(one="lambda y: __import__('warnings').warn('old')") + f"# {name}\n"
        )
        for name in ("base", "head")
    ]
    suite = tmp_path / "one.toml"
    suite.write_text(gate_sites.SUITE)
    wanted = BenchmarkFilter(suite=str(suite), op="*", variant="*", device="*", threads=1)
    base, head = map(str, sites)
    result = run(GateRequest(base=base, head=head, wanted=wanted, limits=GateLimits(seconds=0.1)), Silent())
    assert [each.outcome for each in result.benchmarks] not in ([Outcome.ERROR], [Outcome.NOT_RUN])


def test_a_process_that_the_session_ends_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((3, 4, 4))
    monkeypatch.setattr("tritmark.harness.gate.json_rpc.killed_for_memory", lambda: next(counts))
    monkeypatch.setattr("tritmark.harness.machine.session.killed_for_memory", lambda: next(counts))
    with Child("tritmark.harness.gate.process") as child:
        os.kill(child.pid, 9)
        with pytest.raises(BadEnvironmentError, match="out of memory"):
            child.ask("plan", 30.0)


def test_limits_are_named_before_anything_is_built(repository: Path) -> None:
    ended = session(repository, "gate", "HEAD~1", "HEAD", before="ulimit -v 800000", under=PLAIN)
    ended.must_name("address space", "ulimit -v")
