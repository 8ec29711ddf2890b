"""Sessions in an SQLite file. Several processes may use it at once.

Its size is bounded: the oldest sessions are deleted. A damaged file is set aside under another name, which reports
show, and a new one begins.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from tritmark.harness.caches import state_folder
from tritmark.harness.errors import UsageError
from tritmark.harness.locks import locked
from tritmark.harness.monitor.counters import SeriesKey
from tritmark.harness.monitor.data import Series, SessionData, by_time
from tritmark.harness.monitor.machine_samples import Sample

T = TypeVar("T")

SCHEMA = 2
"""1: without the column `within`."""
MOST_SESSIONS = 5000
MOST_BYTES = 256 << 20
OLDEST_S = 400 * 86400.0
_WAIT_S = 10.0
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MAGIC = b"SQLite format 3\0"
_SUFFIXES = frozenset({".sqlite", ".sqlite3", ".db"})
_ASIDE = ".damaged-"
_TABLES = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, program TEXT NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, complete INTEGER NOT NULL,
    machine TEXT NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL, pid INTEGER NOT NULL, every INTEGER NOT NULL,
    samples TEXT NOT NULL, devices TEXT NOT NULL, within TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions (started);
CREATE TABLE IF NOT EXISTS series (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, entry TEXT NOT NULL, kernel TEXT NOT NULL,
    shape TEXT NOT NULL, threads INTEGER NOT NULL, asynchronous INTEGER NOT NULL, simulated INTEGER NOT NULL,
    calls INTEGER NOT NULL, total_ns INTEGER NOT NULL, histogram TEXT NOT NULL, errors TEXT NOT NULL,
    nbytes REAL, operations REAL, -- beyond 63 bits after some days
    PRIMARY KEY (session, entry, kernel, shape, threads, asynchronous, simulated)
) STRICT;
"""


def default_path() -> Path:
    """The file for sessions that name no other."""
    return state_folder("monitor") / "sessions.sqlite"


class Database:
    """The sessions in a file, by default that of the user's state folder."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        self.unreadable: list[str] = []
        """Sessions that `sessions` left out, with the reason."""

    def save(self, data: SessionData) -> None:
        """Add a session, or replace its earlier state. Raises UsageError if the file cannot be written, or is of a
        newer version."""

        def put(found: sqlite3.Connection) -> None:
            found.execute("BEGIN IMMEDIATE")
            found.execute("DELETE FROM sessions WHERE id = ?", (data.id,))
            found.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(data.id, data.program, data.started, data.ended, data.complete, data.machine, data.host),
                    *(data.version, data.pid, data.every),
                    json.dumps([each.as_json() for each in data.samples]),
                    json.dumps(data.devices),
                    json.dumps(data.within),
                ),
            )
            found.executemany(
                "INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_row(data.id, each) for each in data.series],
            )
            self._bound(found)
            found.execute("COMMIT")

        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._use(put)

    def sessions(
        self, *, since: float = 0.0, until: float = float("inf"), machine: str = "", program: str = ""
    ) -> list[SessionData]:
        """The sessions that started in that time, the oldest first, without those in `unreadable`. A missing file has
        none. Raises UsageError as `save`."""

        def get(found: sqlite3.Connection) -> list[SessionData]:
            rows = found.execute(
                "SELECT * FROM sessions WHERE started >= ? AND started <= ? AND ? IN ('', machine)"
                " AND ? IN ('', program) ORDER BY started, id",
                (since, min(until, 1e15), machine, program),
            ).fetchall()
            made = []
            for row in rows:
                try:
                    series = found.execute("SELECT * FROM series WHERE session = ?", (row["id"],)).fetchall()
                    made.append(_session(row, series))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    self.unreadable.append(f"session {row['id']} cannot be read: {error}")
            return made

        return self._use(get) if self.path.exists() else []

    def set_aside(self) -> list[Path]:
        """Damaged files that were set aside here, the oldest first."""
        return sorted(self.path.parent.glob(f"{self.path.name}{_ASIDE}*[0-9]"))

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            try:
                with self._opened() as found:
                    return work(found)
            except sqlite3.DatabaseError as error:
                if not _damaged(error):
                    raise
                self._check_ours()
                self._put_aside()
                with self._opened() as found:
                    return work(found)
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{self.path}: sessions cannot be read or written: {error}; next: check the folder, or name another "
                "file with TRITMARK_MONITOR or --database"
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)) as found:
            found.row_factory = sqlite3.Row
            # Before the version, since another process may make both.
            (tables,) = found.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (version,) = found.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA:
                raise UsageError(
                    f"{self.path}: sessions of version {version}; legal: up to {SCHEMA}; next: install a newer tritmark"
                )
            if not version and tables:
                raise UsageError(f"{self.path}: a database of another program; next: name another file")
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = NORMAL")
            found.execute("PRAGMA foreign_keys = ON")
            if not version:
                found.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
            elif version < SCHEMA:
                _upgrade(found)
            yield found

    def _check_ours(self) -> None:
        """Refuse to rename a file that a user named by mistake."""
        with self.path.open("rb") as file:
            ours = file.read(len(_MAGIC)) == _MAGIC or self.path.suffix in _SUFFIXES
        if not ours:
            raise UsageError(f"{self.path}: no database of sessions; next: name another file")

    def _put_aside(self) -> None:
        """Rename the damaged file, unless another process did so already."""
        with locked(self.path.with_name(f"{self.path.name}.lock"), _WAIT_S):
            try:
                with self._opened() as found:
                    state = found.execute("PRAGMA quick_check(1)").fetchone()[0]
                if state == "ok":
                    return
            except sqlite3.DatabaseError as error:
                if not _damaged(error):
                    raise
            name = f"{self.path.name}{_ASIDE}{time.time_ns()}"
            for suffix in ("-wal", "-shm", ""):
                part = self.path.with_name(f"{self.path.name}{suffix}")
                if part.exists():
                    part.replace(self.path.with_name(f"{name}{suffix}"))

    @staticmethod
    def _bound(found: sqlite3.Connection) -> None:
        """Delete the oldest sessions beyond the bounds."""
        found.execute("DELETE FROM sessions WHERE started < ?", (time.time() - OLDEST_S,))
        found.execute(
            "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions ORDER BY started DESC LIMIT -1 OFFSET ?)",
            (MOST_SESSIONS,),
        )
        while _used(found) > MOST_BYTES:
            gone = found.execute(
                "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions ORDER BY started LIMIT"
                " (SELECT max(1, count(*) / 20) FROM sessions))"
            )
            if not gone.rowcount:
                return


def _upgrade(found: sqlite3.Connection) -> None:
    """From the version before, unless another process did so meanwhile."""
    found.execute("BEGIN IMMEDIATE")
    (version,) = found.execute("PRAGMA user_version").fetchone()
    if version < SCHEMA:
        found.execute("ALTER TABLE sessions ADD COLUMN within TEXT NOT NULL DEFAULT '[]'")
        found.execute(f"PRAGMA user_version = {SCHEMA}")
    found.execute("COMMIT")


def _damaged(error: sqlite3.DatabaseError) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def _used(found: sqlite3.Connection) -> int:
    pages, free, size = (
        found.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _row(session: str, each: Series) -> tuple[object, ...]:
    key = each.key
    return (
        *(session, key.entry, key.kernel, key.shape, key.threads, key.asynchronous, key.simulated),
        *(each.calls, each.total_ns, json.dumps(dict(each.histogram)), json.dumps(each.errors)),
        *(None if count is None else float(count) for count in (each.nbytes, each.operations)),
    )


def _session(row: sqlite3.Row, series: list[sqlite3.Row]) -> SessionData:
    return SessionData(
        id=row["id"],
        program=row["program"],
        started=row["started"],
        ended=row["ended"],
        complete=bool(row["complete"]),
        machine=row["machine"],
        host=row["host"],
        version=row["version"],
        pid=row["pid"],
        every=row["every"],
        series=by_time(_series(each) for each in series),
        samples=tuple(Sample.from_json(each) for each in json.loads(row["samples"])),
        devices=json.loads(row["devices"]),
        within=tuple(map(str, json.loads(row["within"]))),
    )


def _series(row: sqlite3.Row) -> Series:
    flags = bool(row["asynchronous"]), bool(row["simulated"])
    return Series(
        SeriesKey(row["entry"], row["kernel"], row["shape"], row["threads"], *flags),
        row["calls"],
        row["total_ns"],
        {int(number): count for number, count in json.loads(row["histogram"]).items()},
        json.loads(row["errors"]),
        *(None if row[name] is None else int(row[name]) for name in ("nbytes", "operations")),
    )
