"""Sessions from their start to the database: nested, in threads, after a fork, at the end of a program."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_sessions import DAY, session
from made_up_sessions import series as made_up

import tritmark
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.monitor import database as module
from tritmark.harness.monitor import hook
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.session import MonitorSession
from tritmark.kernels import i2s_quantize

X = np.linspace(-1, 1, 100, dtype=np.float32)


def call(times: int = 1) -> None:
    for _ in range(times):
        i2s_quantize(X, 0.5, threads=1)


def calls(found: MonitorSession) -> int:
    assert found.data is not None
    return found.data.calls


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "sessions.sqlite"


def test_a_session_is_kept_as_it_was_found(database: Path) -> None:
    with tritmark.monitor("serve", database=database) as found:
        call(3)
        with pytest.raises(InvalidArgumentError):
            i2s_quantize(X, -1.0)
    assert hook.active is None
    assert found.problem == ""
    assert found.data is not None
    assert (found.data.program, found.data.calls, found.data.errors, found.data.complete) == ("serve", 3, 1, True)
    assert len(found.data.samples) >= 1
    assert Database(database).sessions() == [found.data]


def test_nested_sessions_count_what_ran_inside(database: Path) -> None:
    with tritmark.monitor(keep=False) as outer:
        call()
        with tritmark.monitor(keep=False) as inner:
            call(2)
            assert inner.now().calls == 2
        call(4)
    assert (calls(outer), calls(inner)) == (7, 2)
    assert hook.active is None


def test_a_nested_session_knows_what_it_is_inside_of(database: Path) -> None:
    with tritmark.monitor("serve", database=database) as outer:
        with tritmark.monitor("decode", database=database) as middle, tritmark.monitor(keep=False) as inner:
            call()
            assert inner.now().within == (outer.now().id, middle.now().id)
        with tritmark.monitor("decode", database=database) as next_one:
            call()
    found = [each.data for each in (outer, middle, inner, next_one)]
    assert all(found)
    ids = [each.id for each in found if each is not None]
    assert [each.within for each in found if each is not None] == [(), (ids[0],), (ids[0], ids[1]), (ids[0],)]
    assert [each.within for each in Database(database).sessions()] == [(), (ids[0],), (ids[0],)]


def test_a_database_of_the_version_before_is_read_and_written(database: Path) -> None:
    ids = kept(database)
    with sqlite3.connect(database) as found:
        found.execute("ALTER TABLE sessions DROP COLUMN within")
        found.execute("PRAGMA user_version = 1")
    found.close()
    threads = [threading.Thread(target=Database(database).sessions) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    later = replace(session(9, [made_up(1e5)], at=time.time()), within=(ids[0],))
    Database(database).save(later)
    assert [(each.id, each.within) for each in Database(database).sessions()] == [
        *((each, ()) for each in ids),
        (later.id, (ids[0],)),
    ]


def test_sessions_that_overlap_in_threads(database: Path) -> None:
    """The first one ends while the second one is open."""
    begun, go_on = threading.Event(), threading.Event()
    late = tritmark.monitor(keep=False)

    def other() -> None:
        with late:
            begun.set()
            go_on.wait(10)
            call()

    thread = threading.Thread(target=other)
    with tritmark.monitor(keep=False) as early:
        thread.start()
        begun.wait(10)
        call()
    go_on.set()
    thread.join()
    assert (calls(early), calls(late)) == (1, 2)
    assert late.data is not None
    assert late.data.within == (), "the other one ended first"


def test_a_decorated_function_is_a_session_each_time(database: Path) -> None:
    @tritmark.monitor(database=database)
    def serve(count: int) -> int:
        call(count)
        return count

    assert [serve(2), serve(3)] == [2, 3]
    assert [(each.program.rpartition(".")[2], each.calls) for each in Database(database).sessions()] == [
        ("serve", 2),
        ("serve", 3),
    ]


def test_a_decorator_without_parentheses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITMARK_STATE", str(tmp_path))

    @tritmark.monitor
    def serve() -> str:
        """Words."""
        call()
        return "done"

    assert serve() == "done"
    assert serve.__doc__ == "Words."
    assert [each.calls for each in Database().sessions()] == [1]
    assert Database().path.is_relative_to(tmp_path)


def test_an_exception_ends_the_session_and_passes_through(database: Path) -> None:
    @tritmark.monitor(database=database)
    def fails() -> None:
        call()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert hook.active is None
    assert [each.calls for each in Database(database).sessions()] == [1]


def test_a_session_without_calls_is_not_kept(database: Path) -> None:
    with tritmark.monitor(database=database):
        pass
    assert not database.exists()


def test_a_session_begins_once() -> None:
    with tritmark.monitor(keep=False) as found, pytest.raises(UsageError, match="began already"):
        found.__enter__()


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan"), 0.01])
def test_an_interval_that_is_too_short(interval: float) -> None:
    with pytest.raises(InvalidArgumentError, match="interval_s"):
        tritmark.monitor(interval_s=interval)


def test_a_file_that_cannot_be_written_does_not_end_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with tritmark.monitor(database=tmp_path / "file" / "sessions.sqlite") as found:
        call()
    assert "file" in found.problem
    assert "not saved" in caplog.text
    assert calls(found) == 1


PROGRAM = """
import os, sys
import tritmark
{before}
import numpy as np
from tritmark.kernels import i2s_quantize
x = np.ones(10, np.float32)
i2s_quantize(x, 1.0)
{after}
"""


def run(folder: Path, before: str = "", after: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM.format(before=before, after=textwrap.dedent(after)))
    return subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TRITMARK_STATE": str(folder / "state"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize("asked", ["1", "elsewhere.sqlite"])
def test_the_environment_variable_watches_a_whole_program(tmp_path: Path, asked: str) -> None:
    run(tmp_path, TRITMARK_MONITOR="1" if asked == "1" else str(tmp_path / asked))
    path = tmp_path / "state" / "monitor" / "sessions.sqlite" if asked == "1" else tmp_path / asked
    (found,) = Database(path).sessions()
    assert (found.program, found.calls, found.complete) == ("program.py", 1, True)


@pytest.mark.nightly
@pytest.mark.parametrize("asked", ["", "0"])
def test_without_the_variable_nothing_is_watched(tmp_path: Path, asked: str) -> None:
    run(tmp_path, after="from tritmark.harness.monitor import hook; assert hook.active is None", TRITMARK_MONITOR=asked)
    assert not (tmp_path / "state" / "monitor").exists()


@pytest.mark.nightly
def test_a_session_that_began_before_the_kernels_were_imported(tmp_path: Path) -> None:
    """tritmark.monitor imports no heavy module, and waits for the kernels."""
    run(
        tmp_path,
        before="session = tritmark.monitor().__enter__()\nassert 'numpy' not in sys.modules",
        after="session.__exit__(None, None, None)",
    )
    (found,) = Database(tmp_path / "state" / "monitor" / "sessions.sqlite").sessions()
    assert found.calls == 1


@pytest.mark.nightly
def test_a_forked_child_writes_no_session_of_the_parent(tmp_path: Path) -> None:
    after = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run
    child = os.fork()
    if not child:
        i2s_quantize(x, 1.0)
        i2s_quantize(x, 1.0)
        with tritmark.monitor("child"):
            i2s_quantize(x, 1.0)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    i2s_quantize(x, 1.0)
    """
    run(tmp_path, after=after, TRITMARK_MONITOR="1")
    found = Database(tmp_path / "state" / "monitor" / "sessions.sqlite").sessions()
    assert sorted((each.program, each.calls) for each in found) == [("child", 1), ("program.py", 2)]


def test_a_running_session_is_saved_again_and_again(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.monitor.session._SAVE_S", 0.0)
    with tritmark.monitor("long", database=database, interval_s=0.05):
        call(2)
        for _ in range(200):
            if database.exists() and Database(database).sessions():
                break
            threading.Event().wait(0.05)
        (found,) = Database(database).sessions()
        assert (found.calls, found.complete) == (2, False)
        call()
    (found,) = Database(database).sessions()
    assert (found.calls, found.complete) == (3, True)


@pytest.mark.nightly
def test_two_processes_write_at_once(tmp_path: Path) -> None:
    after = """
    for number in range(5):
        with tritmark.monitor("both") as session:
            i2s_quantize(x, 1.0)
        assert not session.problem, session.problem
    """
    threads = [threading.Thread(target=run, args=(tmp_path, "", after)) for _ in range(2)]
    (tmp_path / "program.py").write_text(PROGRAM.format(before="", after=textwrap.dedent(after)))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(Database(tmp_path / "state" / "monitor" / "sessions.sqlite").sessions()) == 10


def kept(database: Path, count: int = 3) -> list[str]:
    for number in range(count):
        Database(database).save(session(number, [made_up(1e5)], at=time.time() - number))
    return [each.id for each in Database(database).sessions()]


@pytest.mark.parametrize("damage", [b"no database at all, but words", b"\xff" * 100_000, None])
def test_a_damaged_file_is_set_aside(database: Path, damage: bytes | None) -> None:
    kept(database)
    if damage is None:  # the first page is whole, and the others are not
        data = database.read_bytes()
        damage = data[:4096] + b"\x5a" * (len(data) - 4096)
    database.write_bytes(damage)
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    new = session(9, [made_up(1e5)], at=time.time())
    Database(database).save(new)
    assert [each.id for each in Database(database).sessions()] == [new.id]
    (aside,) = Database(database).set_aside()
    assert aside.read_bytes() == damage


def test_a_session_that_cannot_be_read_is_named_and_the_others_are_read(database: Path) -> None:
    ids = kept(database)
    with sqlite3.connect(database) as found:
        found.execute("UPDATE series SET histogram = '[1, 2' WHERE session = ?", (ids[1],))
        found.execute("UPDATE sessions SET samples = '[{}]' WHERE id = ?", (ids[2],))
    found.close()
    opened = Database(database)
    assert [each.id for each in opened.sessions()] == ids[:1]
    assert [ids[1] in opened.unreadable[0], ids[2] in opened.unreadable[1]] == [True, True]


def test_a_locked_file_is_not_taken_for_a_damaged_one(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = kept(database)
    monkeypatch.setattr(module, "_WAIT_S", 0.05)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(UsageError, match="locked"):
            Database(database).save(session(9, [made_up(1e5)]))
    finally:
        other.close()
    assert [each.id for each in Database(database).sessions()] == ids
    assert Database(database).set_aside() == []


def test_a_newer_database_is_refused_and_left_alone(database: Path) -> None:
    kept(database)
    with sqlite3.connect(database) as found:
        found.execute(f"PRAGMA user_version = {module.SCHEMA + 1}")
    found.close()
    for use in (Database(database).sessions, lambda: Database(database).save(session(9, [made_up(1e5)]))):
        with pytest.raises(UsageError, match=re.escape(f"version {module.SCHEMA + 1}")):
            use()
    assert Database(database).set_aside() == []


def test_a_missing_database_has_no_sessions(database: Path) -> None:
    assert Database(database).sessions() == []
    assert not database.exists()


def test_the_file_is_bounded(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 5)
    now = time.time()
    old = session(100, [made_up(1e5)], at=now - module.OLDEST_S - DAY)
    Database(database).save(old)
    for number in range(8):
        Database(database).save(session(number, [made_up(1e5)], at=now + number))
    assert [each.id for each in Database(database).sessions()] == [f"session-{number:04d}" for number in range(3, 8)]
    monkeypatch.setattr(module, "MOST_BYTES", 50_000)
    Database(database).save(session(9, [made_up(1e5)], at=now + 9))
    rest = Database(database).sessions()
    assert rest
    assert rest[-1].id == "session-0009"
    with sqlite3.connect(database) as found:
        assert found.execute("SELECT count(DISTINCT session) FROM series").fetchone()[0] == len(rest)
    found.close()


def test_sessions_by_time_machine_and_program(database: Path) -> None:
    for number, (machine, program) in enumerate([("a", "x"), ("a", "y"), ("b", "x")]):
        Database(database).save(
            session(number, [made_up(1e5)], machine=machine, program=program, at=time.time() + number)
        )

    def numbers(**asked: object) -> list[int]:
        return [int(each.id[-1]) for each in Database(database).sessions(**asked)]  # type: ignore[arg-type]

    assert numbers(machine="a") == [0, 1]
    assert numbers(program="x") == [0, 2]
    assert numbers(since=time.time() + 1.5) == [2]
    assert numbers(until=time.time() + 0.5) == [0]
