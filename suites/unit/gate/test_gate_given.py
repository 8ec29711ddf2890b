"""Checks of a gate before it builds: equal sides, and uncommitted changes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from gate_requests import Silent
from typer.testing import CliRunner

from tritmark.harness.cli import exit_status
from tritmark.harness.cli.gate import gate
from tritmark.harness.errors import NothingToCompareError, UsageError
from tritmark.harness.gate import run as room
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.given import check_op, same, uncommitted
from tritmark.harness.gate.render_github import commands, summary
from tritmark.harness.gate.render_junit import junit
from tritmark.harness.gate.render_text import _head
from tritmark.harness.gate.result import Build, GateResult
from tritmark.harness.gate.run import GateRequest
from tritmark.harness.record.facts import machine_facts
from tritmark.harness.record.versions import environment


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits that differ; the second has a tag, and an empty commit follows it."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("one", "two"):
        (folder / "a.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", text)
    git(folder, "tag", "v1")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "Nothing")
    return folder


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*arguments: object) -> None:
        raise AssertionError("nothing has to be built")

    monkeypatch.setattr(room, "both_built", built)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("HEAD", "HEAD", "are the same commit"),
        ("v1", "HEAD~1", "are the same commit"),
        ("v1", "HEAD", "are the same files"),
        ("HEAD~2", "HEAD", ""),
        ("nonesuch", "nonesuch", ""),
    ],
)
def test_the_same_revision_under_any_name_is_said_at_once(
    repository: Path, unbuilt: None, base: str, head: str, said: str
) -> None:
    found = same(base, head, repository)
    assert (said in found) if said else not found
    if said:
        with pytest.raises(NothingToCompareError, match=f"BASE {base} and HEAD {head} {said}"):
            room.run(GateRequest(base=base, head=head, folder=repository), Silent())


def test_the_same_wheel_or_build_is_said_too(tmp_path: Path) -> None:
    for name in ("a.whl", "b.whl"):
        (tmp_path / name).write_bytes(b"wheel")
    (tmp_path / "c.whl").write_bytes(b"another")
    assert "the same wheel" in same(str(tmp_path / "a.whl"), str(tmp_path / "b.whl"))
    assert same(str(tmp_path / "a.whl"), str(tmp_path / "c.whl")) == ""
    site = tmp_path / "site"
    (site / "x.dist-info").mkdir(parents=True)
    (site / "x.py").write_text("1")
    copy = Path(shutil.copytree(site, tmp_path / "copy"))
    assert "the same build" in same(str(site), str(copy))
    changed = Path(shutil.copytree(site, tmp_path / "changed"))
    (changed / "x.py").write_text("2")
    assert same(str(site), str(changed)) == ""


def test_what_is_not_committed_is_in_neither_build(repository: Path) -> None:
    assert uncommitted("HEAD~2", "HEAD", repository) == ""
    (repository / "a.py").write_text("three")
    found = uncommitted("HEAD~2", "HEAD", repository)
    assert found.startswith("uncommitted changes (a.py) are in neither build")
    git(repository, "add", ".")
    assert uncommitted("HEAD~2", "HEAD", repository) == found
    (wheels := repository.parent / "w.whl").write_bytes(b"")
    assert uncommitted(str(wheels), str(wheels), repository) == "", "no revision is compared"


def test_the_note_comes_before_anything_is_built(repository: Path, unbuilt: None) -> None:
    noted: list[str] = []

    class Noting(Silent):
        def noted(self, what: str) -> None:
            noted.append(what)

    (repository / "a.py").write_text("three")
    with pytest.raises(AssertionError, match="nothing has to be built"):
        room.run(GateRequest(base="HEAD~2", head="HEAD", folder=repository), Noting())
    assert len(noted) == 1


def test_every_form_of_the_result_has_the_note() -> None:
    note = "uncommitted changes (a.py) are in neither build"
    side = Build(given="x", packages={}, digest="0")
    result = GateResult(
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        base=side,
        head=side,
        suite="quick",
        budget=1.0,
        together=True,
        notes=(note,),
        machine=machine_facts(),
        environment=environment((), 0),
    )
    assert _head(result)[0] == f"NOTE {note}"
    assert json.loads(result.model_dump_json())["notes"] == [note]
    assert commands(result).startswith(f"::warning title=Not compared::{note}")
    assert "uncommitted changes" in summary(result)
    assert note in junit(result)


def test_the_command_has_a_status_for_it(repository: Path, monkeypatch: pytest.MonkeyPatch, unbuilt: None) -> None:
    monkeypatch.chdir(repository)
    app = typer.Typer()
    app.command()(gate)
    for form in ("text", "json", "junit"):
        done = CliRunner().invoke(app, ["v1", "HEAD", "--format", form])
        assert done.exit_code == exit_status.UNTRIED
        assert "so there is nothing to compare" in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize("op", ["i2s_quantise", "nosuch*"])
def test_an_op_that_neither_build_can_have_is_refused_before_anything_is_built(
    repository: Path, unbuilt: None, op: str
) -> None:
    request = GateRequest(base="HEAD~2", head="HEAD", folder=repository, wanted=BenchmarkFilter(op=op))
    with pytest.raises(UsageError, match=r"matches no op; .*legal: .*i2s_quantize") as refused:
        room.run(request, Silent())
    assert ("did you mean 'i2s_quantize'?" in str(refused.value)) is (op == "i2s_quantise")


def test_an_op_that_a_build_may_have_is_not_refused(repository: Path, tmp_path: Path) -> None:
    check_op("i2s_*", ("i2s_quantize",), "HEAD~2", "HEAD", repository)
    with pytest.raises(UsageError):
        check_op("newer", ("i2s_quantize",), "HEAD~2", "HEAD", repository)
    check_op("newer", ("i2s_quantize",), "HEAD", str(tmp_path / "other.whl"), repository)
    (repository / "kernels" / "newer").mkdir(parents=True)
    (repository / "kernels" / "newer" / "spec.py").write_text("")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Add an op")
    check_op("newer", ("i2s_quantize",), "HEAD~1", "HEAD", repository)
