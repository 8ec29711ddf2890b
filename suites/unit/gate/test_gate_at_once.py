"""Concurrent builds: the compilers that they find, no file compiled twice, and progress."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tritmark.harness.cli.gate_progress import GateTerminal
from tritmark.harness.errors import UsageError
from tritmark.harness.gate import both_built as room
from tritmark.harness.gate.both_built import both_built
from tritmark.harness.gate.build import BuildProgress, Built, _sources
from tritmark.harness.gate.compilers import cached_compilers
from tritmark.harness.gate.opened import BuildError
from tritmark.harness.gate.part import BuildPart

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="flock (util-linux) is not installed")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a ccache that logs its calls, and compilers that log their begin and end."""
    folder, log = tmp_path / "bin", tmp_path / "log"
    script(folder / "ccache", f'echo "ccache $1" >> {log}; exec "$@"')
    script(folder / "mycc", f'echo "begin $1" >> {log}; sleep 0.4; echo "end $1" >> {log}')
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CC", "mycc -pthread")
    monkeypatch.setenv("CXX", "nonesuch++")
    return folder


def compile_two(folder: Path, *sources: str) -> list[str]:
    """The log while the build's compiler compiles these files concurrently."""
    environment = os.environ | cached_compilers(folder / "compilers", os.environ)
    jobs = [subprocess.Popen(["mycc", each], env=environment, cwd=folder) for each in sources]
    assert [job.wait() for job in jobs] == [0] * len(jobs)
    return [line for line in (folder / "log").read_text().splitlines() if not line.startswith("ccache")]


def test_a_build_finds_its_compiler_through_ccache(tmp_path: Path, tools: Path) -> None:
    compile_two(tmp_path, "a.c")
    assert (tmp_path / "log").read_text().splitlines() == [f"ccache {tools / 'mycc'}", "begin a.c", "end a.c"]


def test_the_same_command_is_not_run_twice_at_once(tmp_path: Path, tools: Path) -> None:
    assert compile_two(tmp_path, "a.c", "a.c") == ["begin a.c", "end a.c"] * 2


def test_other_commands_run_side_by_side(tmp_path: Path, tools: Path) -> None:
    assert {line.split()[0] for line in compile_two(tmp_path, "a.c", "b.c")[:2]} == {"begin"}


def test_both_builds_may_ask_for_compilers_at_once(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting, write = threading.Barrier(2), Path.write_text

    def together(path: Path, *given: Any, **named: Any) -> int:
        written = write(path, *given, **named)
        meeting.wait(30)
        return written

    monkeypatch.setattr(Path, "write_text", together)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(cached_compilers, tmp_path / "c", os.environ) for _ in range(2)]
    assert jobs[0].result() == jobs[1].result()
    assert [path.name for path in (tmp_path / "c").iterdir() if path.is_file()] == ["mycc"]


def test_a_damaged_wrapper_is_written_anew(tmp_path: Path) -> None:
    if not cached_compilers(tmp_path, os.environ):
        pytest.skip("without ccache and flock there are no wrappers")
    scripts = {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    assert scripts
    for each in scripts:
        each.write_bytes(b"\xff\xfe\x00")
    cached_compilers(tmp_path, os.environ)
    assert {each: each.read_bytes() for each in scripts} == scripts


def test_what_ccache_stands_for_already_is_not_doubled(tmp_path: Path, tools: Path) -> None:
    (tools / "mycc").unlink()
    (tools / "mycc").symlink_to("ccache")
    cached_compilers(tmp_path / "c", os.environ)
    found = (tmp_path / "c/mycc").read_text()
    assert f" {tools / 'mycc'} " in found
    assert f" {tools / 'ccache'} " not in found


def test_ccache_finds_the_compiler_and_not_the_script_again(tmp_path: Path, tools: Path) -> None:
    """Under a compiler's name, ccache runs the first program of that name in PATH that is not ccache."""
    (tools / "mycc").rename(script(tmp_path / "real/mycc", ""))
    elsewhere = f'[ "$each" -ef {tools} ] || [ ! -x "$each/${{0##*/}}" ] || exec "$each/${{0##*/}}" "$@"'
    script(tools / "ccache", f"IFS=:; for each in $PATH; do {elsewhere}; done")
    (tools / "mycc").symlink_to("ccache")
    path = f"{tools}{os.pathsep}{tmp_path / 'real'}{os.pathsep}{os.environ['PATH']}"
    given = {**os.environ, "PATH": f"{tmp_path / 'c'}{os.pathsep}{path}"}
    environment = given | cached_compilers(tmp_path / "c", given)
    subprocess.run(["mycc", "a.c"], env=environment, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "log").read_text().splitlines() == ["begin a.c", "end a.c"]


@pytest.mark.parametrize(
    "change",
    [
        lambda tools, patch: (tools / "ccache").unlink(),
        lambda tools, patch: patch.setenv("CC", f"{tools / 'mycc'} -pthread"),
        lambda tools, patch: patch.setenv("CC", "nonesuch"),
    ],
    ids=["no ccache", "a path", "no compiler"],
)
def test_else_the_compiler_is_left_as_it_is(
    tmp_path: Path,
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    change(tools, monkeypatch)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    if shutil.which("ccache") is not None and not (tools / "ccache").exists():
        monkeypatch.setattr("shutil.which", lambda name: None if name == "ccache" else f"/usr/bin/{name}")
    cached_compilers(tmp_path / "c", os.environ)
    assert not [path for path in (tmp_path / "c").glob("*") if path.is_file()]


class ProgressCallback:
    def __init__(self) -> None:
        self.totals: list[int] = []
        self.done: list[int] = []
        self.said: list[str] = []

    def planned(self, total: int) -> None:
        self.totals.append(total)

    def started(self, what: str) -> None:
        self.said.append(what)

    def advanced(self, done: int) -> None:
        self.done.append(done)


def test_both_are_built_at_once_and_progress_counts_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2)

    def built(given: str, begun: Callable[[BuildProgress], None], folder: Path | None, part: BuildPart) -> Built:
        source = tmp_path / given
        source.mkdir()
        begun(BuildProgress(given, source, 3))
        meeting.wait(30)  # sequential builds would fail here
        for number in range(4):
            time.sleep(0.02)
            (source / f"{number}.o").touch()
        meeting.wait(30)
        time.sleep(0.1)
        shutil.rmtree(source)
        return Built(given, source)

    monkeypatch.setattr(room, "built", built)
    monkeypatch.setattr(room, "must_exist", lambda given, folder: None)
    monkeypatch.setattr(room, "_LOOK_S", 0.01)
    seen = ProgressCallback()
    assert [each.given for each in both_built("one", "two", None, seen)] == ["one", "two"]
    assert seen.totals[-1] == 6
    assert set(seen.said[-1].split()) == {"building", "one", "and", "two"}
    assert seen.done == sorted(seen.done)
    assert seen.done[-1] == 6, "each made four objects of three sources"


def test_a_build_that_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(given: str, begun: Callable[[BuildProgress], None], folder: Path | None, part: BuildPart) -> Built:
        if given == "two":
            raise BuildError("two does not build")
        time.sleep(0.3)
        return Built(given, Path())

    looks: list[float] = []
    monkeypatch.setattr(room, "built", built)
    monkeypatch.setattr(room, "must_exist", lambda given, folder: None)
    monkeypatch.setattr(room, "_LOOK_S", 0.1)
    wait = vars(room)["wait"]

    def looked(*arguments: Any) -> Any:
        looks.append(time.monotonic())
        return wait(*arguments)

    monkeypatch.setattr(room, "wait", looked)
    with pytest.raises(BuildError, match="two does not build"):
        both_built("one", "two", None, ProgressCallback())
    assert len(looks) < 10, "it waits for the other and does not spin"


@pytest.mark.parametrize(("base", "head"), [("nonesuch.whl", "HEAD"), ("HEAD", "nonesuch.whl")])
def test_what_is_not_there_is_told_before_anything_is_built(
    base: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "built", lambda *given: pytest.fail("something was built"))
    (tmp_path / "x.dist-info").mkdir()
    first, second = (str(tmp_path) if each == "HEAD" else each for each in (base, head))
    with pytest.raises(UsageError, match=r"nonesuch\.whl: no such file"):
        both_built(first, second, None, ProgressCallback())


def test_sources_are_those_of_folders_with_cython_where_there_are_some(tmp_path: Path) -> None:
    for name in ("native/a.c", "native/deep/b.cpp", "tests/fuzz.c", "c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert _sources(tmp_path) == 3
    (tmp_path / "native/module.pyx").touch()
    assert _sources(tmp_path) == 2 + 2, "of Cython's the C is made first"
    making = BuildProgress("", tmp_path, 4)
    assert making.compiled() == 0
    (tmp_path / "native/module.c").touch()
    (tmp_path / "build/temp").mkdir(parents=True)
    (tmp_path / "build/temp/a.o").touch()
    assert making.compiled() == 2
    assert _sources(tmp_path / "nothing") == 0
    (tmp_path / "native/src/other").mkdir(parents=True)
    (tmp_path / "native/src/other/b.c").touch()
    assert (_sources(tmp_path), _sources(tmp_path, {"other"})) == (6, 5)
    (tmp_path / "native/module.c").unlink()
    (tmp_path / "build/cython/native").mkdir(parents=True)
    (tmp_path / "build/cython/native/module.c").touch()
    assert making.compiled() == 2, "a build may put the C elsewhere"


def test_the_line_counts_each_kind_of_work_from_its_beginning() -> None:
    now = iter(float(second) for second in range(10_000))
    shown = io.StringIO()
    terminal = GateTerminal(Console(file=shown, width=120), lambda: next(now))
    terminal.planned(240)
    terminal.started("building main and slow")
    for done in (3, 3, 2, 90):
        terminal.advanced(done)
    (task,) = terminal._bar.tasks
    assert (task.completed, task.total) == (90, 240)
    assert terminal._pace.left() is not None
    terminal.planned(4)
    (task,) = terminal._bar.tasks
    assert (task.completed, task.total, terminal._pace.left()) == (0, 4, None)
    terminal.advanced(1)
    assert terminal._bar.tasks[0].completed == 1
    terminal.noted("changes are in neither build")
    assert terminal.failures == []
    assert "tritmark: changes are in neither build" in shown.getvalue()
