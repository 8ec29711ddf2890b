"""Records on disk. `runs/<id>.json` is written atomically and never changed.

During an invocation, `runs/<id>.partial/` holds a header and one file for each finished Run and layer. At the end, the
Record is assembled from them and the folder is removed. A lock in the folder distinguishes a running invocation from an
interrupted one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import time
from typing import TypeVar

from filelock import Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.locks import locked
from tritmark.harness.record import (
    DIMENSIONS,
    SCHEMA_VERSION,
    Environment,
    Layer,
    Machine,
    Record,
    Run,
    read_digest,
    with_digest,
)

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_WRITER = re.compile(r"\.([0-9]+)\.[0-9a-f]{8}\.tmp$")
_ABANDONED_S = 60.0
"""Seconds without a change after which a temporary file counts as abandoned; its writer may be on another machine."""

_LARGEST = 1 << 30
"""The largest Record in bytes; larger files are refused."""


class Options(BaseModel):
    """The options that determine the Runs and their data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    suite_digest: str
    op: str
    variant: str
    forced: dict[str, str]
    """For each device, the variant that the environment forces."""
    devices: tuple[str, ...] = ()
    """Devices that take part; simulated ones are marked."""
    weights: str
    layout: str = ""
    weight_scale: str = ""
    threads: int
    seed: int
    dimensions: tuple[str, ...] = tuple(sorted(DIMENSIONS))


class Header(BaseModel):
    """Facts that are known when an invocation begins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    id: str
    created: str
    options: Options
    environment: Environment
    machine: Machine


def new_id() -> str:
    """A unique id: the time in UTC and 32 random bits. Ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file in full or not at all, even if this process is killed.

    `durable`: also if the machine loses power. Without it, a power cut may remove or empty the file, but writing
    thousands of files is fast. Raises UsageError if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
        raise


def read(path: Path) -> Record:
    """Read a Record. Raises RecordError if it is missing, truncated, corrupt, of a newer version, or was changed after
    it was written. The file is not modified."""
    record = read_anyhow(path)
    changed = changed_since(path.read_bytes(), record)
    if changed:
        legal = f"a Record as `tritmark run` wrote it; next: tritmark verify {path}"
        raise RecordError(path=str(path), found=changed, legal=legal)
    return record


def read_anyhow(path: Path) -> Record:
    """Read a Record that may have been changed; the caller reports the change."""
    return _read(path, Record, f"a Record of schema version 1 to {SCHEMA_VERSION}, as `tritmark run` writes it")


def changed_since(data: bytes, record: Record) -> str:
    """The evidence in the bytes of a Record's file that it was changed after it was written; "" for none."""
    found = read_digest(data)
    if found is not None:
        if found.unchanged:
            return ""
        return f"the file was changed after it was written: it states {found.claimed}, and has {found.found}"
    if record.schema_version == 1 and not record.digest:
        return ""  # no digest was written before version 2
    return "the file was changed after it was written: it does not end with a digest, as version 2 or newer does"


class Store:
    """The Records under one output folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.runs = out / "runs"

    @property
    def html(self) -> Path:
        """Folder of reports."""
        return self.out / "html"

    def path(self, id: str) -> Path:
        """The file of the Record with that id. Raises UsageError for an invalid id."""
        return self._inside(id, ".json")

    def records(self) -> list[str]:
        """The ids of all Records, oldest first."""
        return self._ids(".json", Path.is_file)

    def latest(self) -> Path:
        """The file of the newest Record. Raises UsageError if there is none."""
        ids = self.records()
        if not ids:
            raise UsageError(f"{self.runs}: holds no Record; next: make one with `tritmark run`")
        return self.path(ids[-1])

    def find(self, name: str) -> Path:
        """The file of the Record `name`: an id, or the path of a file."""
        return self.path(name) if _ID.fullmatch(name) else Path(name)

    @contextmanager
    def begin(self, header: Header) -> Iterator[Partial]:
        """Start an invocation. The folder stays if the block ends before `complete`.

        Raises UsageError if the folder cannot be written.
        """
        folder = self._inside(header.id, ".partial")
        self._sweep()
        being_made = self.runs / f".{header.id}.tmp"
        with ExitStack() as stack:
            try:
                being_made.mkdir(parents=True)
                write_atomically(being_made / "header.json", header.model_dump_json())
                # Locked before it is visible, so that no other command resumes it. The lock survives the rename of the
                # folder.
                stack.enter_context(locked(being_made / "lock", 0))
                being_made.rename(folder)
            except OSError as error:
                raise UsageError(f"{folder}: cannot be made: {error.strerror or error}") from error
            yield Partial(self, folder, header)

    @contextmanager
    def resume(self, name: str = "") -> Iterator[Partial]:
        """The interrupted invocation `name` (an id or the folder's path), or the newest, locked against another resume.

        Raises UsageError if there is none or it is still running, and RecordError if its header cannot be read.
        """
        there = self.partials()
        candidates = [Path(name).name.removesuffix(".partial")] if name else list(reversed(there))
        for id in candidates:
            folder = self._inside(id, ".partial")
            if id not in there:
                raise UsageError(f"{folder}: no such interrupted run; there are: {', '.join(there) or 'none'}")
            with ExitStack() as stack:
                try:
                    stack.enter_context(locked(folder / "lock", 0))
                except Timeout:
                    continue
                yield Partial(self, folder, _read(folder / "header.json", Header, "the header of an interrupted run"))
            return
        if candidates:
            raise UsageError(
                f"{self.runs / candidates[0]}.partial: is still running in another process; next: wait for it"
            )
        raise UsageError(f"{self.runs}: holds no interrupted run; next: start one without --resume")

    def partials(self) -> list[str]:
        """The ids of all invocations that have begun and have no Record yet, oldest first."""
        records = self.records()
        return [id for id in self._ids(".partial", Path.is_dir) if id not in records]

    def _sweep(self) -> None:
        """Remove leftovers of killed invocations: folders whose Record is already written, and abandoned temporary
        files."""
        for id in self.records():
            shutil.rmtree(self.runs / f"{id}.partial", ignore_errors=True)
        for path in (*self.runs.glob(".*.tmp"), *self.html.glob(".*.tmp")):
            writer = _WRITER.search(path.name)
            with suppress(OSError):
                if (
                    path.is_symlink()
                    or time() - path.stat().st_mtime < _ABANDONED_S
                    or (writer and _alive(int(writer[1])))
                ):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    def _inside(self, id: str, suffix: str) -> Path:
        if not _ID.fullmatch(id):
            raise UsageError(f"{id!r} is not an id of a run; legal: such as {new_id()}")
        path = self.runs / f"{id}{suffix}"
        _no_link(self.runs)
        _no_link(path)
        return path

    def _ids(self, suffix: str, kind: Callable[[Path], bool]) -> list[str]:
        found = (
            [path for path in self.runs.glob(f"*{suffix}") if not path.is_symlink() and kind(path)]
            if self.runs.is_dir()
            else []
        )
        return sorted(path.name.removesuffix(suffix) for path in found if _ID.fullmatch(path.name.removesuffix(suffix)))


class Partial:
    """The finished part of an invocation."""

    def __init__(self, store: Store, folder: Path, header: Header) -> None:
        self.store = store
        self.folder = folder
        self.header = header

    def on(self, machine: Machine) -> None:
        """Store the facts of the machine."""
        header = self.header.model_copy(update={"machine": machine})
        write_atomically(self.folder / "header.json", header.model_dump_json())
        self.header = header

    def add(self, found: Run | Layer) -> None:
        """Store a finished Run or layer."""
        write_atomically(self._file(type(found), _name(found)), found.model_dump_json(), durable=False)

    def finished_runs(self) -> dict[str, Run]:
        """The finished Runs, by id. A Run that cannot be read counts as not finished and is repeated."""
        return dict(self._finished(Run))

    def finished_layers(self) -> dict[str, Layer]:
        """The finished layers, by name."""
        return dict(self._finished(Layer))

    def complete(self, record: Record) -> Path:
        """Write the Record and remove the folder. Raises UsageError if a Record with that id exists."""
        path = self.store.path(record.id)
        if path.exists():
            raise UsageError(f"{path}: exists already, and Records are never overwritten")
        write_atomically(path, with_digest(record))
        shutil.rmtree(self.folder, ignore_errors=True)
        return path

    def _file(self, kind: type[Run | Layer], name: str) -> Path:
        return (
            self.folder
            / f"{kind.__name__.lower()}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
        )

    def _finished(self, kind: type[FoundT]) -> Iterable[tuple[str, FoundT]]:
        for path in sorted(self.folder.glob(f"{kind.__name__.lower()}-*.json")):
            with suppress(RecordError):
                found = _read(path, kind, "a finished part of a run")
                if path == self._file(kind, _name(found)):
                    yield _name(found), found


FoundT = TypeVar("FoundT", Run, Layer)
ModelT = TypeVar("ModelT", bound=BaseModel)


def _name(found: Run | Layer) -> str:
    return found.id if isinstance(found, Run) else found.name


def _read(path: Path, model: type[ModelT], legal: str) -> ModelT:
    def refuse(found: str) -> RecordError:
        return RecordError(path=str(path), found=found, legal=legal)

    try:
        if path.stat().st_size > _LARGEST:
            raise refuse(f"{path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise refuse(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 at byte {error.start}") from error
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        what = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else "JSON that is nested too deeply"
        raise refuse(what if text.strip() else "an empty file") from error
    if not isinstance(document, dict):
        raise refuse(f"a JSON {type(document).__name__} where an object should be")
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise refuse(f"schema version {version}, written by a newer tritmark")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise refuse(f"{where}: {first['msg']}" if where else first["msg"]) from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _no_link(path: Path) -> None:
    if path.is_symlink():
        raise UsageError(f"{path}: is a symbolic link; legal: a real file or folder")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
