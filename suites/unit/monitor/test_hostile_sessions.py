"""Reports of sessions with hostile names and clocks, from files that are something else, and odd command lines."""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from command_line import status_of
from made_up_sessions import DAY, series, session
from rich.console import Console

from tritmark.harness.errors import UsageError
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.page import render
from tritmark.harness.monitor.summary import Report, summarize
from tritmark.harness.monitor.text import show

BAD = "\x1b[31m</title><script>alert(1)</script>\"'><img src=x onerror=1>\nSLOWER forged\u202e"


def printed(report: Report) -> str:
    out = StringIO()
    show(report, Console(file=out, width=300, color_system=None))
    return out.getvalue()


def report(*arguments: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of `tritmark monitor report`."""
    return status_of(monkeypatch, "monitor", "report", "--database", database, *arguments)


def test_names_write_neither_lines_nor_markup(tmp_path: Path) -> None:
    """Each text that a database may hold, in a report with a series that is SLOWER."""
    database, now = Database(tmp_path / "x.sqlite"), time.time()
    for number in range(12):
        one = series(1e5 if number < 11 else 2e5, seed=number, errors={BAD: 3})
        key = replace(one.key, entry=BAD, kernel=BAD, shape=BAD)
        data = session(number, [replace(one, key=key)], program=BAD, version=BAD, at=now - 12 + number)
        database.save(replace(data, host=BAD, devices={BAD: {BAD: 1}}))
    found = summarize(database, since=now - 100)
    assert len(found.slower) == 1
    text, page = printed(found), render(found)
    assert not re.search(r"^\s*SLOWER forged|\x1b|\u202e", text, re.MULTILINE)
    assert not re.search(r"<script>alert|<img|\x1b|\u202e", page)
    assert "&lt;script&gt;alert" in page


def test_what_is_slower_names_its_program(tmp_path: Path) -> None:
    database, now = Database(tmp_path / "x.sqlite"), time.time()
    for number in range(12):
        for program in ("one.py", "two.py"):
            slow = number == 11 and program == "two.py"
            data = session(number, [series(2e5 if slow else 1e5, seed=number)], program=program, at=now - 12 + number)
            database.save(replace(data, id=f"{number}-{program}"))
    found = summarize(database, since=now - 100)
    assert [each.program for each in found.slower] == ["two.py"]
    before, _, after = printed(found).partition("Kernels, the most time first")
    assert after
    assert ("two.py" in before, "one.py" in before) == (True, False)


def test_a_newest_session_without_times_has_no_verdict_of_an_earlier_one(tmp_path: Path) -> None:
    """Otherwise a kernel that now raises in each call is SAME."""
    database, now = Database(tmp_path / "x.sqlite"), time.time()
    for number in range(8):
        database.save(session(number, [series(1e5, seed=number)], at=now - 12 + number))
    failed = replace(series(1e5), calls=0, total_ns=0, histogram={}, errors={"DeviceError": 5})
    database.save(session(9, [failed], at=now))
    (row,) = summarize(database, since=now - 100).rows
    assert (row.judgement.verdict, row.judgement.why) == ("NEW", "no call was timed")


def test_sessions_of_the_future_are_named(tmp_path: Path) -> None:
    database, now = Database(tmp_path / "x.sqlite"), time.time()
    database.save(session(0, [series(1e5)], at=now))
    database.save(session(1, [series(1e5)], at=now + DAY))
    found = summarize(database, since=now - 100)
    assert len(found.sessions) == 1
    assert any("the clock was set back" in each for each in found.notes)
    assert not summarize(database, since=now - 100, until=now + 2 * DAY).notes


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("999999w", 0),
        ("99999999999999w", 0),
        ("0001-01-01", 0),
        ("0001-01-01T00:00+12:00", 2),
        ("9" * 5000 + "d", 2),
        ("-3d", 2),
        ("", 2),
        ("²d", 2),
    ],
)
def test_any_time_is_taken_or_refused(asked: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report(f"--since={asked}", database=tmp_path / "x.sqlite", monkeypatch=monkeypatch) == status


def test_a_time_zone_is_not_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report("--since=2026-01-31T02:00+05:00", database=tmp_path / "x.sqlite", monkeypatch=monkeypatch)
    assert "2026-01-30 21:00 to" in capsys.readouterr().out


def test_a_file_that_never_was_a_database_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# Notes")
    assert report(database=notes, monkeypatch=monkeypatch) == 2
    with pytest.raises(UsageError, match="no database of sessions"):
        Database(notes).save(session(0, [series(1e5)]))
    assert [*tmp_path.iterdir()] == [notes]
    assert notes.read_text() == "# Notes"


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "places.sqlite"
    with sqlite3.connect(other) as found:
        found.execute("CREATE TABLE places (url TEXT)")
    found.close()
    before = other.read_bytes()
    for use in (Database(other).sessions, lambda: Database(other).save(session(0, [series(1e5)]))):
        with pytest.raises(UsageError, match="of another program"):
            use()
    assert other.read_bytes() == before
