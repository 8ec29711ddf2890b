"""Sets on disk: what is finished is kept at once, each job once, and nothing that was changed on its way."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_sets import OP, PRODUCT, begun, filled, id_of, jobs, record, runs

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.fleet.model import JobState
from tritmark.harness.fleet.sets import find, read_set
from tritmark.harness.record import Record, with_digest
from tritmark.harness.store import read


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Record:
    return record(1, "a", runs({"avx2": 0.9}, monkeypatch))


def test_a_record_is_on_disk_as_soon_as_it_is_added(tmp_path: Path, made: Record) -> None:
    folder = begun(tmp_path, 9, jobs("cpu/a", "cpu/b"))
    first, second = folder.found.jobs
    assert folder.add(first, "alice", with_digest(made).encode()) is not None
    kept = read_set(folder.folder)
    assert kept is not None
    assert [(each.state, each.record, each.worker) for each in kept.jobs] == [
        (JobState.DONE, made.id, "alice"),
        (JobState.WAITING, "", ""),
    ]
    assert read(folder.store.path(made.id)).id == made.id
    assert kept.missing == [second]
    assert kept.why(second) == "still running, or killed"
    assert folder.end("later").why(second) == "the command ended before it was run"


def test_a_job_that_dask_ran_twice_has_its_first_record(tmp_path: Path, made: Record) -> None:
    folder = begun(tmp_path, 9, jobs("cpu/a"))
    (job,) = folder.found.jobs
    assert folder.add(job, "alice", with_digest(made).encode()) is not None
    again = made.model_copy(update={"id": id_of(2)})
    assert folder.add(job, "bob", with_digest(again).encode()) is None
    folder.lose(job, "its worker died")
    assert folder.found.jobs[0].record == made.id
    assert folder.found.missing == []
    assert folder.store.records() == [made.id]


@pytest.mark.parametrize("what", ["changed", "cut off", "empty", "other op", "no digest"])
def test_what_is_not_the_record_of_the_job_is_refused(
    tmp_path: Path, made: Record, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(tmp_path, 9, jobs("cpu/a"))
    (job,) = folder.found.jobs
    whole = with_digest(made).encode()
    data = {
        "changed": whole.replace(b'"seed":20250311', b'"seed":20250312'),
        "cut off": whole[: len(whole) // 2],
        "empty": b"",
        "other op": with_digest(record(1, "a", runs({"avx2": 0.9}, monkeypatch, PRODUCT))).encode(),
        "no digest": made.model_dump_json().encode(),
    }[what]
    assert data != whole
    with pytest.raises(RecordError, match=f"Record of worker alice for {OP[0]} on cpu/a"):
        folder.add(job, "alice", data)
    assert folder.store.records() == []
    assert folder.found.missing == [job]


def test_a_record_that_another_job_brought_is_refused(tmp_path: Path, made: Record) -> None:
    folder = begun(tmp_path, 9, jobs("cpu/a", "cpu/b"))
    first, second = folder.found.jobs
    folder.add(first, "alice", with_digest(made).encode())
    with pytest.raises(RecordError, match="a second Record"):
        folder.add(second, "bob", with_digest(made).encode())
    assert folder.found.missing == [second]


def test_sets_are_found_by_id_by_path_and_by_age(tmp_path: Path, made: Record) -> None:
    old, new = (filled(tmp_path, number, {"cpu/a": made}) for number in (3, 4))
    assert find("", tmp_path) == new
    assert find(id_of(3), tmp_path) == old
    assert find(str(old), tmp_path) == old
    with pytest.raises(UsageError, match=f"is no set; legal: an id under .*{id_of(3)}"):
        find(id_of(5), tmp_path)
    with pytest.raises(UsageError, match="next: make one with `tritmark fleet run`"):
        find("", tmp_path / "elsewhere")


def test_a_damaged_set_is_named(tmp_path: Path, made: Record) -> None:
    folder = filled(tmp_path, 3, {"cpu/a": made})
    (folder / "set.json").write_text('{"version": 1}')
    with pytest.raises(RecordError, match=r"set\.json: id: Field required"):
        read_set(folder)
