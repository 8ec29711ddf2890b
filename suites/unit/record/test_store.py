"""Records on disk: written atomically, never overwritten, and either readable or refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_up_records import MACHINE
from pydantic import ValidationError

from tritmark.harness import store as store_module
from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.record import (
    SCHEMA_VERSION,
    Accuracy,
    Cross,
    Environment,
    Layer,
    MemoryUse,
    Performance,
    Record,
    Run,
    Status,
    Verdict,
    WorkloadFacts,
    read_digest,
)
from tritmark.harness.store import Header, Options, Store, new_id, read, write_atomically
from tritmark.harness.text.outcome import outcome

pytestmark = pytest.mark.interpreter

LEFT_OUT = "not requested"
ENVIRONMENT = Environment(
    tritmark="0", python="3", packages={}, compiler="", variables={}, commit=None, command=("tritmark", "run"), seed=0
)
OPTIONS = Options(suite="quick", suite_digest="d", op="*", variant="*", forced={}, weights="", threads=0, seed=0)


def header(id: str | None = None) -> Header:
    return Header(
        id=id or new_id(),
        created="2025-01-01T00:00:00+00:00",
        options=OPTIONS,
        environment=ENVIRONMENT,
        machine=MACHINE,
    )


def run(id: str, status: Status = Status.PASS) -> Run:
    reason = "" if status is Status.PASS else "because"
    return Run(
        id=id,
        op="o",
        format="none",
        dtype="int8",
        device="cpu",
        variant="v",
        kernel="cpu/o/none/int8/v",
        workload=WorkloadFacts(id="w", axes={"n": 1}, family="normal", layout="aligned", seed=0),
        threads=1,
        accuracy=Accuracy(status=status, reason=reason),
        performance=Performance(status=Status.NOT_RUN, reason="not requested"),
        memory=MemoryUse(status=Status.NOT_RUN, reason=LEFT_OUT),
        cross=Cross(status=Status.NOT_RUN, reason=LEFT_OUT),
        receipt=None,
        seconds=0.0,
    )


def record(id: str, *runs: Run) -> Record:
    return Record(
        id=id,
        created="2025-01-01T00:00:00+00:00",
        suite="quick",
        complete=True,
        environment=ENVIRONMENT,
        machine=MACHINE,
        runs=runs,
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_from_beginning_to_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    with store.begin(header()) as partial:
        partial.add(run("a"))
        partial.add(run("b"))
        partial.add(Layer(status=Status.PASS, name="layer/../0", shape=(1, 2), dtype="float32", bytes=8))
        assert partial.finished_runs() == {"a": run("a"), "b": run("b")}
        assert list(partial.finished_layers()) == ["layer/../0"]
        assert store.partials() == [partial.header.id]
        assert store.records() == []
        path = partial.complete(record(partial.header.id, run("a"), run("b")))
    assert names(store.runs) == [path.name]
    assert path == store.latest() == store.find(partial.header.id)
    assert read(path).runs == (run("a"), run("b"))


def test_a_record_ends_with_its_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.begin(header()) as partial:
        path = partial.complete(record(partial.header.id, run("a")))
    found = read_digest(path.read_bytes())
    assert found is not None
    assert found.unchanged
    assert read(path).digest == found.claimed


def test_a_record_of_version_1_is_still_read(tmp_path: Path) -> None:
    """A file without the fields that version 2 added."""
    document = json.loads(record("20250101T000000Z-00000000", run("a")).model_dump_json())
    document["schema_version"] = 1
    del document["digest"], document["machine"]["gpus"]
    for each in document["runs"]:
        del each["device_memory"], each["upload"], each["download"]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(document))
    assert read(path).schema_version == 1
    assert read(path).runs == (run("a"),)


def test_ids_differ_and_sort_by_time() -> None:
    before = datetime.now(UTC)
    ids = [new_id() for _ in range(200)]
    after = datetime.now(UTC)
    assert len(set(ids)) == 200
    times = [datetime.strptime(id.split("-")[0], "%Y%m%dT%H%M%S%z") for id in ids]
    assert times == sorted(times)
    assert before.replace(microsecond=0) <= times[0] <= times[-1] <= after


def test_the_newest_record_is_the_latest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for id in ("20250101T000000Z-ffffffff", "20250102T000000Z-00000000"):
        with store.begin(header(id)) as partial:
            partial.complete(record(id))
    assert store.latest().name == "20250102T000000Z-00000000.json"


def test_nothing_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match="holds no Record"):
        store.latest()
    with pytest.raises(UsageError, match="holds no interrupted run"), store.resume():
        pass


def test_a_record_is_never_written_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    id = new_id()
    with store.begin(header(id)) as partial:
        path = partial.complete(record(id))
    before = path.read_bytes()
    with store.begin(header(id)) as partial, pytest.raises(UsageError, match="never overwritten"):
        partial.complete(record(id, run("other")))
    assert path.read_bytes() == before
    assert store.partials() == []


def test_resume_takes_the_newest_or_the_one_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = "20250101T000000Z-00000000", "20250102T000000Z-00000000"
    for id in (old, new):
        with store.begin(header(id)) as partial:
            partial.add(run(id))
    with store.resume() as partial:
        assert list(partial.finished_runs()) == [new]
    for name in (old, str(store.runs / f"{old}.partial")):
        with store.resume(name) as partial:
            assert list(partial.finished_runs()) == [old]
    with pytest.raises(UsageError, match="no such interrupted run"), store.resume("20250103T000000Z-00000000"):
        pass
    with pytest.raises(UsageError, match="not an id of a run"), store.resume("../../etc"):
        pass


def test_a_run_that_goes_on_cannot_be_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.begin(header()) as partial:
        for name in ("", partial.header.id):
            with pytest.raises(UsageError, match="still running"), store.resume(name):
                pass
    with store.resume(), pytest.raises(UsageError, match="still running"), store.resume():
        pass


def test_a_broken_part_is_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.begin(header()) as partial:
        partial.add(run("a"))
        partial.add(run("b"))
        part = sorted(partial.folder.glob("run-*.json"))[0]
        part.write_text(part.read_text()[:-20])
        (partial.folder / ".run-x.json.tmp").write_text("{")
        assert len(partial.finished_runs()) == 1
        # A part under the file name of another part is rejected.
        other = sorted(partial.folder.glob("run-*.json"))[1]
        part.write_text(other.read_text())
        assert len(partial.finished_runs()) == 1


def _begin_and_end(out: str, count: int) -> None:
    store = Store(Path(out))
    for _ in range(count):
        with store.begin(header()) as partial:
            partial.add(run("a"))
            partial.complete(record(partial.header.id, run("a")))


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_begin_and_end, args=(str(tmp_path), 20)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    store = Store(tmp_path)
    assert len(store.records()) == 40
    for id in store.records():
        assert outcome(read(store.path(id))).passed
    assert len(names(store.runs)) == 40


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The old file or the new one remains, never a partial one."""
    path = tmp_path / "file.json"
    write_atomically(path, "old")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    if step == "fsync":
        monkeypatch.setattr(store_module.os, "fsync", killed)  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.json"]


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.json"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UsageError, match="cannot be made"), Store(tmp_path / "results").begin(header()):
        pass


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = tmp_path / "results"
    out.mkdir()
    (out / "runs").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="symbolic link"), Store(out).begin(header()):
        pass
    assert names(elsewhere) == []
    (out / "runs").unlink()
    (out / "runs").mkdir()
    id = new_id()
    (out / "runs" / f"{id}.json").symlink_to(elsewhere / "target")
    assert Store(out).records() == []
    with pytest.raises(UsageError, match="symbolic link"):
        Store(out).path(id)
    (out / "runs" / f"{id}.partial").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="symbolic link"), Store(out).resume(id):
        pass


@pytest.mark.parametrize("id", ["", "..", "../x", "20250101T000000Z-0000000", "20250101T000000Z-00000000/..", "latest"])
def test_only_ids_name_files(tmp_path: Path, id: str) -> None:
    with pytest.raises(UsageError, match="not an id of a run"):
        Store(tmp_path).path(id)


def changed(**fields: Any) -> str:
    document = json.loads(record("20250101T000000Z-00000000", run("a")).model_dump_json())
    document.update(fields)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "an empty file"),
        (changed()[:-1], "not JSON"),
        (changed() + "}", "not JSON"),
        ("[1]", "a JSON list"),
        ("[" * 100_000, "JSON"),
        (
            changed(schema_version=SCHEMA_VERSION + 1),
            f"schema version {SCHEMA_VERSION + 1}, written by a newer tritmark",
        ),
        (changed(schema_version=0), "schema_version"),
        (changed(surprise=1), "surprise"),
        (changed(runs=7), "runs"),
        ("{}", "id: Field required"),
        (b"\xff\xfe{", "not UTF-8 at byte 0"),
        (changed().replace('"seconds": 0.0', '"seconds": NaN'), "seconds"),
    ],
)
def test_what_is_no_record_is_refused_and_left_alone(tmp_path: Path, content: str | bytes, found: str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(RecordError) as caught:
        read(path)
    assert found in caught.value.found
    assert str(path) in str(caught.value)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_missing_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read(tmp_path / "none.json")


def test_contradictions_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValidationError, match="needs a reason"):
        Verdict(status=Status.FAIL)
    with pytest.raises(ValidationError, match="finite"):
        Accuracy(status=Status.PASS, largest_error=float("nan"))


def test_a_record_passes_only_if_something_ran_and_nothing_failed() -> None:
    assert outcome(record("a", run("x"))).passed
    assert not outcome(record("a")).passed
    assert not outcome(record("a", run("x"), run("y", Status.FAIL))).passed
    assert not outcome(record("a", run("x", Status.ERROR))).passed
    bad = Layer(status=Status.FAIL, reason="why", name="w", shape=(1, 1), dtype="float32", bytes=4)
    assert not outcome(record("a", run("x")).model_copy(update={"layers": (bad,)})).passed


def test_what_killed_invocations_left_is_swept(tmp_path: Path) -> None:
    """Files that may still be written, Records and resumable folders are kept."""
    store = Store(tmp_path)
    begun = header()
    with store.begin(begun) as partial:
        done = partial.complete(record(begun.id))
    old = time.time() - 3600
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = {
        f"{begun.id}.partial/header.json": False,
        "20250101T000000Z-00000000.partial/header.json": True,
        f".one.json.{gone.pid}.0123abcd.tmp": False,
        f".two.json.{os.getpid()}.0123abcd.tmp": True,
        ".20250101T000000Z-00000001.tmp/header.json": False,
    }
    for name in left:
        path = store.runs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
        for each in (path, path.parent) if path.parent != store.runs else (path,):
            os.utime(each, (old, old))
    young = store.runs / f".three.json.{gone.pid}.0123abcd.tmp"
    young.write_text("{")
    with store.begin(header()):
        assert {name: (store.runs / name).exists() for name in left} == left
        assert young.exists()
        assert done.exists()
