"""The error history stays readable and bounded, whatever happens to its file, and never breaks the program."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.recovery import Diagnosis, FailureKind, Recovery, Strategy, Tried, history


def recovery(number: int = 0, found: str = "broke", detail: str = "", kernel: str = "cpu/op/f/d/k") -> Recovery:
    diagnosis = Diagnosis(kind=FailureKind.SEGMENTATION_FAULT, found=found, code="SIGSEGV", detail=detail)
    return Recovery(
        op="op",
        failed=kernel,
        diagnosis=diagnosis,
        tried=(Tried(strategy=Strategy.SCALAR, kernel="cpu/op/f/d/scalar", failure=None, seconds=0.1),),
        strategy=Strategy.SCALAR,
        kernel="cpu/op/f/d/scalar",
        seconds_lost=number,
        advice="look",
        created="2026-01-02T03:04:05Z",
    )


@given(st.text(max_size=3000), st.text(max_size=5000), st.text(max_size=300))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, found: str, detail: str, kernel: str) -> None:
    file = tmp_path_factory.mktemp("history") / "history.jsonl"
    line = history.line_of(recovery(found=found, detail=detail, kernel=kernel))
    assert line.count(b"\n") == 1
    file.write_bytes(line * 2)
    read = history.read(file)
    assert read.unreadable == 0
    assert len(read.failures) == 2
    assert read.failures[0].kernel == kernel[:300]
    assert found.startswith(read.failures[0].found)


def test_the_file_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history.jsonl"
    line = len(history.line_of(recovery(10_000, detail="x" * 1200)))
    count = 2 * history.MOST_BYTES // line
    file.parent.mkdir()
    file.write_bytes(b"".join(history.line_of(recovery(number, detail="x" * 1200)) for number in range(count)))
    for number in range(count, count + 3):
        assert history.append(recovery(number, detail="x" * 1200), file)
    assert file.stat().st_size <= history.MOST_BYTES
    kept = [int(each.seconds_lost) for each in history.read(file).failures]
    assert kept == list(range(kept[0], count + 3))
    assert len(kept) > count // 8
    assert sorted(each.name for each in file.parent.iterdir()) == ["history.jsonl", "history.lock"]


@pytest.mark.parametrize(
    ("tail", "unreadable"),
    [
        (b'{"created": "2026', 1),
        (b"\xff\xfe\x00", 1),
        (b"[1, 2]\n", 1),
        (b"null\nnull\n", 2),
        (b'{"created": "x", "kind": "no such", "strategy": "none"}\n', 1),
        (b"\n\n\n", 0),
        (b'{"created": "x", "kind": "error", "strategy": "none", "seconds_lost": 1' + b"0" * 400 + b"}\n", 1),
        (b'{"created": "x", "kind": "error", "strategy": "none", "seconds_lost": NaN}\n', 1),
    ],
)
def test_a_corrupt_tail_is_counted_and_the_next_line_is_whole(tmp_path: Path, tail: bytes, unreadable: int) -> None:
    file = tmp_path / "history.jsonl"
    history.append(recovery(1), file)
    with file.open("ab") as open_file:
        open_file.write(tail)
    assert history.append(recovery(2), file)
    found = history.read(file)
    assert [each.seconds_lost for each in found.failures] == [1, 2]
    assert found.unreadable == unreadable


def test_fields_of_newer_versions_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    newer = json.loads(history.line_of(recovery())) | {"since_version_2": [1]}
    file.write_text(json.dumps(newer) + "\n")
    assert len(history.read(file).failures) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_full_disk_does_not_break_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def full(*given: Any) -> int:
        raise OSError(number, os.strerror(number))

    history._unwritable.cache_clear()
    monkeypatch.setattr(os, "write", full)
    with caplog.at_level(logging.WARNING):
        assert not any(history.append(recovery(), tmp_path / "history.jsonl") for _ in range(3))
    assert len([each for each in caplog.records if "not written" in each.message]) == 1


def test_a_file_in_place_of_the_folder_does_not_break_the_program(tmp_path: Path) -> None:
    (tmp_path / "errors").write_text("")
    assert not history.append(recovery(), tmp_path / "errors" / "history.jsonl")


@pytest.mark.nightly
def test_several_processes_write_at_once(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from test_history import recovery\n"
        "from tritmark.harness.recovery import history\n"
        "history._WAIT_S = 60\n"
        "assert all(history.append(recovery(n, detail='y' * 900), Path(sys.argv[2])) for n in range(50))"
    )
    each = [subprocess.Popen([sys.executable, "-c", code, str(Path(__file__).parent), str(file)]) for _ in range(3)]
    assert [one.wait() for one in each] == [0, 0, 0]
    found = history.read(file)
    assert (len(found.failures), found.unreadable) == (150, 0)


def test_the_folder_is_that_of_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path))
    assert history.path() == tmp_path / "errors" / "history.jsonl"
    assert history.read() == history.ErrorHistory((), 0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from tritmark.harness.cli import app

    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path))
    assert "no failures are recorded" in CliRunner().invoke(app, ["errors"]).output
    for number in range(5):
        history.append(recovery(number, kernel=f"cpu/op/f/d/k{number}\x1b[2J"))
    with history.path().open("ab") as file:
        file.write(b'{"cut')
    shown = CliRunner().invoke(app, ["errors"])
    assert shown.exit_code == 0
    for words in ("5 failures, 0 without a result", "segmentation fault (5)", "and 2 more", "SIGSEGV", "-> look"):
        assert words in shown.stdout, shown.stdout
    assert "\x1b[2J" not in shown.stdout
    assert "1 lines are cut off" in shown.stderr
    told = json.loads(CliRunner().invoke(app, ["errors", "--json", "--since", "2026-01-02T03:04:05"]).stdout)
    assert [len(told["failures"]), told["unreadable"]] == [5, 1]
    later = CliRunner().invoke(app, ["errors", "--since", "2026-01-03"]).stdout
    assert later == "no failures are recorded since 2026-01-03T00:00:00Z\n"
    assert "legal: a day or a time" in str(CliRunner().invoke(app, ["errors", "--since", "then"]).exception)


def test_entries_cannot_forge_lines_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from tritmark.harness.cli import app

    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path))
    forged = "\x1b[2J\n  -> run this"
    entry = json.loads(history.line_of(recovery(1, found=forged, kernel=f"k{forged}")))
    entry |= {name: entry[name] + forged for name in ("created", "code", "replacement", "advice")}
    history.path().parent.mkdir(parents=True)
    history.path().write_text(json.dumps(entry) + "\n")
    shown = CliRunner().invoke(app, ["errors"])
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    assert [each for each in shown.stdout.split("\n") if each.startswith("  ->")] == [
        line for line in shown.stdout.split("\n") if line.startswith("  -> look")
    ]


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("0300-01-01", True),
        ("2026-01-02T03", True),
        ("9999-01-01", False),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("yesterday", None),
    ],
)
def test_the_time_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str, shown: bool | None
) -> None:
    from typer.testing import CliRunner

    from tritmark.harness.cli import app
    from tritmark.harness.errors import UsageError

    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path))
    history.append(recovery(1))
    made = CliRunner().invoke(app, ["errors", "--since", since])
    if shown is None:
        assert isinstance(made.exception, UsageError | SystemExit), made.exception
        assert made.exit_code == 2 or "--since" in str(made.exception)
    else:
        assert made.exit_code == 0
        assert ("1 failure" in made.stdout) is shown
