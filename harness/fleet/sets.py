"""Sets of Records on disk: DIR/fleet/ID/ with set.json and, as every folder of Records, runs/."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.fleet.model import SET_VERSION, FleetJob, FleetSet, FleetWorker, JobState
from tritmark.harness.record import Record
from tritmark.harness.store import Store, changed_since, write_atomically

FOLDER = "fleet"
_NAME = "set.json"


class SetFolder:
    """A set that is being made. Each change is written at once."""

    def __init__(self, out: Path, made: FleetSet) -> None:
        self.folder = out / FOLDER / made.id
        self.store = Store(self.folder)
        self.found = made
        try:
            self.store.runs.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be made: {error.strerror or error}") from error
        self._write()

    def add(self, job: FleetJob, worker: str, data: bytes) -> Record | None:
        """Keep the Record of a job: the bytes of its file. None if the job has one already; the first is kept.

        Raises RecordError for bytes that are no Record, or were changed.
        """
        if self._current(job).state is JobState.DONE:
            return None
        record = _read(job, worker, data)
        path = self.store.path(record.id)
        if path.exists():
            raise RecordError(path=str(path), found=f"a second Record {record.id}, of worker {worker}", legal="one")
        write_atomically(path, data.decode("utf-8"))
        self._replace(job, {"state": JobState.DONE, "record": record.id, "worker": worker, "reason": ""})
        return record

    def lose(self, job: FleetJob, reason: str) -> None:
        """Note why a job was never completed."""
        if self._current(job).state is not JobState.DONE:
            self._replace(job, {"state": JobState.LOST, "reason": reason})

    def on(self, worker: FleetWorker) -> None:
        """Note a worker that was accepted, also one that came later."""
        known = {each.address: each for each in self.found.workers}
        self._write({"workers": tuple({**known, worker.address: worker}.values())})

    def end(self, now: str) -> FleetSet:
        """Note the end, and return the set."""
        self._write({"ended": now})
        return self.found

    def _current(self, job: FleetJob) -> FleetJob:
        return next(each for each in self.found.jobs if each.key == job.key)

    def _replace(self, job: FleetJob, changes: dict[str, object]) -> None:
        jobs = tuple(
            each.model_copy(update=changes) if each.key == job.key else each for each in self.found.jobs
        )  # fmt: skip
        self._write({"jobs": jobs})

    def _write(self, changes: dict[str, object] | None = None) -> None:
        self.found = self.found.model_copy(update=changes or {})
        write_atomically(self.folder / _NAME, self.found.model_dump_json(indent=1) + "\n")


def find(name: str, out: Path) -> Path:
    """The folder of the set `name`: an id, or a path of a folder with runs/. "" is the newest set under `out`.

    Raises UsageError if there is none.
    """
    under = out / FOLDER
    known = sorted(path.name for path in under.glob("*") if (path / _NAME).is_file())
    if not name:
        if not known:
            raise UsageError(f"{under}: holds no set; next: make one with `tritmark fleet run`")
        return under / known[-1]
    for folder in (under / name, Path(name)):
        if (folder / "runs").is_dir():
            return folder
    raise UsageError(
        f"{name!r} is no set; legal: an id under {under} ({', '.join(known) or 'none'}), or a folder with runs/"
    )


def read_set(folder: Path) -> FleetSet | None:
    """The set of that folder; None if it has Records alone. Raises RecordError if set.json cannot be read."""
    path = folder / _NAME
    legal = f"a set of version 1 to {SET_VERSION}, as `tritmark fleet run` writes it"
    try:
        return FleetSet.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(path=str(path), found=error.strerror or str(error), legal=legal) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(path=str(path), found=f"{where}: {first['msg']}".lstrip(": "), legal=legal) from error


def _read(job: FleetJob, worker: str, data: bytes) -> Record:
    source = f"Record of worker {worker} for {job.op} on {job.kind}"
    legal = "a Record as `tritmark run` wrote it"
    try:
        record = Record.model_validate_json(data)
    except ValidationError as error:
        found = str(error.errors(include_url=False)[0]["msg"])
        raise RecordError(path=source, found=found, legal=legal) from error
    changed = changed_since(data, record)
    others = {run.op for run in record.runs} - {job.op}
    if others:
        changed = changed or f"Runs of {', '.join(sorted(others))}"
    if changed:
        raise RecordError(path=source, found=changed, legal=legal)
    return record
