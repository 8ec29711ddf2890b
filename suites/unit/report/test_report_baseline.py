"""The Record that a report compares with if the user names none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import outcome_of

from tritmark.harness.record import Record, Status, with_digest
from tritmark.harness.report.baseline import latest_passing
from tritmark.harness.store import Store
from tritmark.harness.verify import refuted

IDS = [f"2025010{day}T000000Z-0000000{day}" for day in range(1, 8)]


def kept(record: Record, store: Store) -> None:
    store.runs.mkdir(parents=True, exist_ok=True)
    store.path(record.id).write_text(with_digest(record), encoding="utf-8")


def of(record: Record, number: int, **change: object) -> Record:
    return record.model_copy(update={"id": IDS[number], **change})


def failing(record: Record) -> Record:
    """The Record with an incorrect kernel."""
    first, *others = record.runs
    accuracy = first.accuracy.model_copy(update={"status": Status.FAIL, "reason": "planted", "differing": 1})
    return record.model_copy(update={"runs": (first.model_copy(update={"accuracy": accuracy}), *others), "counts": {}})


def faster(record: Record) -> Record:
    """A Record with a figure that its samples contradict."""
    first, *others = record.runs
    assert first.performance.cold is not None
    timing = first.performance.cold.timing
    cold = first.performance.cold.model_copy(
        update={"timing": timing.model_copy(update={"median_ns": timing.median_ns / 10})}
    )
    run = first.model_copy(update={"performance": first.performance.model_copy(update={"cold": cold})})
    return record.model_copy(update={"runs": (run, *others)})


@pytest.fixture
def store(tmp_path: Path, gpu_record: Record) -> Store:
    """Records of which only the second may be a baseline of the last one."""
    found = Store(tmp_path / "results")
    machine = gpu_record.machine.model_copy(update={"id": "0123456789ab"})
    for each in (
        of(gpu_record, 0),
        of(gpu_record, 1),
        of(gpu_record, 2, machine=machine),
        of(gpu_record, 3, suite="full"),
        of(gpu_record, 4, complete=False),
        of(failing(gpu_record), 5),
        of(gpu_record, 6),
    ):
        kept(each, found)
    return found


def test_the_latest_passing_record_of_machine_and_suite_is_the_baseline(store: Store, gpu_record: Record) -> None:
    found = latest_passing(of(gpu_record, 6), store)
    assert found.record is not None
    assert found.record.id == IDS[1]
    nothing = latest_passing(of(gpu_record, 0), store)
    assert nothing.record is None
    assert "no earlier Record of this machine and suite quick passed" in nothing.missing


def test_what_verify_refutes_or_was_changed_is_no_baseline(store: Store, gpu_record: Record) -> None:
    kept(of(faster(gpu_record), 1), store)
    found = latest_passing(of(gpu_record, 6), store)
    assert found.record is not None
    assert found.record.id == IDS[0]
    path = store.path(IDS[0])
    path.write_text(path.read_text().replace('"seed":', '"seed": ', 1))
    assert latest_passing(of(gpu_record, 6), store).record is None


def test_weights_of_other_files_are_not_compared(store: Store, gpu_record: Record) -> None:
    kept(of(gpu_record, 5, weights_path="a.gguf"), store)
    found = latest_passing(of(gpu_record, 6, weights_path="b.gguf"), store)
    assert found.record is None
    found = latest_passing(of(gpu_record, 6, weights_path="a.gguf"), store)
    assert found.record is not None
    assert found.record.id == IDS[5]


def test_a_record_without_a_common_run_is_no_baseline(store: Store, gpu_record: Record) -> None:
    """As of two files that were checked with the same suite."""
    runs = tuple(run.model_copy(update={"threads": run.threads + 1}) for run in gpu_record.runs)
    other = of(gpu_record, 5, runs=runs)
    assert not refuted(other)
    kept(other, store)
    found = latest_passing(of(gpu_record, 6), store)
    assert found.record is not None
    assert found.record.id == IDS[1]
    for id in IDS[:2]:
        store.path(id).unlink()
    assert "no earlier Record of this machine and suite quick that measured the same kernels passed" in (
        latest_passing(of(gpu_record, 6), store).missing
    )


@pytest.mark.parametrize("name", ["größe.gguf", "\u2028", 'a"b\\c', "\x7f\x80"])
def test_weights_of_any_name_are_compared(name: str, store: Store, gpu_record: Record) -> None:
    kept(of(gpu_record, 5, weights_path=name), store)
    found = latest_passing(of(gpu_record, 6, weights_path=name), store)
    assert found.record is not None
    assert found.record.id == IDS[5]


def test_records_of_one_second_have_no_order(store: Store, gpu_record: Record) -> None:
    second = IDS[6].partition("-")[0]
    kept(gpu_record.model_copy(update={"id": f"{second}-00000000"}), store)
    found = latest_passing(gpu_record.model_copy(update={"id": f"{second}-ffffffff"}), store)
    assert found.record is not None
    assert found.record.id == IDS[1]


def test_the_command_states_the_change(
    store: Store, gpu_record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reported(record: str) -> tuple[str, str]:
        told = outcome_of(monkeypatch, capsys, "report", record, "--out", store.out)
        assert told.status == 0
        return Path(told.out.strip()).read_text(encoding="utf-8"), told.err

    page, said = reported(IDS[6])
    sentence = f"compared with Record {IDS[1]} of {gpu_record.created[:10]}"
    assert sentence in said
    assert "same" in said
    assert "slower" not in said
    assert sentence in page
    assert 'id="baseline"' in page
    page, said = reported(IDS[0])
    assert not said
    assert "no earlier Record of this machine" in page
    assert json.loads(store.path(IDS[0]).read_text())["id"] == IDS[0]
