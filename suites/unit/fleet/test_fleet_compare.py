"""`tritmark fleet compare` on sets of pretended machines."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, outcome_of
from made_up_sets import OP, SIZES, filled, id_of, record, runs

from tritmark.harness.record import Performance, Record, Run, Status, with_digest
from tritmark.harness.store import Store

LATER = "2026-12-02T00:00:00+00:00"


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    def command(*words: str) -> Outcome:
        monkeypatch.setenv("COLUMNS", "200")
        return outcome_of(monkeypatch, capsys, "fleet", "compare", "--out", tmp_path, *words)

    return command


def machine(monkeypatch: pytest.MonkeyPatch, number: int, name: str, created: str = LATER, **speeds: float) -> Record:
    return record(number, name, runs(speeds, monkeypatch), created)


def found(outcome: Outcome) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(outcome.out)
    return made


def cells(made: dict[str, Any]) -> dict[str, list[str]]:
    """The winners on each machine, at each size."""
    names = [each["label"] for each in made["machines"]]
    return {name: [row["cells"][place]["variant"] for row in made["rows"]] for place, name in enumerate(names)}


def test_which_kernel_wins_where(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {
        "cpu/a": machine(monkeypatch, 1, "a", avx2=0.5, avx512=0.9),
        "cpu/b": machine(monkeypatch, 2, "b", avx2=0.7, avx512=0.4),
    }
    filled(tmp_path, 9, of, {"cpu/c": "4 workers died with it"})
    made = found(compare("--json"))
    assert cells(made) == {"cpu/a": ["avx512"] * 2, "cpu/b": ["avx2"] * 2}
    assert [each["wins"] for each in made["machines"]] == [{"avx512": 2}, {"avx2": 2}]
    assert [each["machine"] for each in made["machines"]] == ["a", "b"]
    for row in made["rows"]:
        first, second = row["cells"]
        assert (first["fastest"], second["fastest"]) == (True, False)
        assert first["share"] / second["share"] == pytest.approx(0.9 / 0.7, rel=0.05)
        assert first["ns"] == pytest.approx(second["ns"] * 0.7 / 0.9, rel=0.05)
    outcome = compare()
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("2 machines on 2 workloads, 1 job not run\n")
    assert f"Not run: {OP[0]} on cpu/c: 4 workers died with it" in outcome.out
    assert re.search(rf"i2s_quantize int8 +n={SIZES[0]} +avx512 \*, .* %  +avx2, .* %", outcome.out)
    page = tmp_path / "html" / f"fleet-{id_of(9)}.html"
    assert str(page) in outcome.out
    text = page.read_text()
    for each in ("CPU of a", "CPU of b", "avx512", "4 workers died with it", "b-1", f"n={SIZES[1]}"):
        assert each in text


def test_kernels_within_their_intervals_tie(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {
        "cpu/a": machine(monkeypatch, 1, "a", avx2=0.9, avx512=0.9),
        "cpu/b": machine(monkeypatch, 2, "b", avx2=0.9, avx512=0.3),
    }
    filled(tmp_path, 9, of)
    made = found(compare("--json"))
    for row in made["rows"]:
        first, second = row["cells"]
        assert {first["variant"], *first["ties"]} == {"avx2", "avx512"}
        assert (second["variant"], second["ties"]) == ("avx2", [])
        assert not first["fastest"]
        assert not second["fastest"]


def changed(run: Run, **verdicts: Any) -> Run:
    return run.model_copy(update=verdicts)


def test_a_kernel_that_is_wrong_somewhere_wins_nowhere(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(monkeypatch, 1, "a", avx2=0.5, avx512=0.9)
    wrong = [
        changed(
            run,
            accuracy=run.accuracy.model_copy(update={"status": Status.FAIL, "reason": "wrong at [3]"}),
            performance=Performance(status=Status.NOT_RUN, reason="only a correct kernel is measured"),
        )
        if run.variant == "avx512" and run.workload.axes["n"] == SIZES[0]
        else run
        for run in made.runs
    ]
    filled(tmp_path, 9, {"cpu/a": made.model_copy(update={"runs": tuple(wrong)})})
    outcome = compare("--json")
    assert outcome.status == 0, outcome.err
    made_of_them = found(outcome)
    assert cells(made_of_them) == {"cpu/a": ["avx2"] * 2}
    assert len(made_of_them["failures"]) == made_of_them["machines"][0]["failed"] == 1
    assert "wrong at [3]" in made_of_them["failures"][0]


def test_regressions_against_an_earlier_set(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"cpu/a": machine(monkeypatch, 1, "a", avx2=0.8), "cpu/b": machine(monkeypatch, 2, "b", avx2=0.8)}
    now = {
        "cpu/a": machine(monkeypatch, 3, "a", avx2=0.8),
        "cpu/b": machine(monkeypatch, 4, "b", avx2=0.6),
        "cpu/c": machine(monkeypatch, 5, "c", avx2=0.1),
    }
    filled(tmp_path, 8, before)
    filled(tmp_path, 9, now)
    outcome = compare("--json", "--against", id_of(8))
    assert outcome.status == 1
    made = found(outcome)
    assert {each["label"] for each in made["changes"] if each["change"] == "slower"} == {"cpu/b"}
    for each in made["changes"]:
        assert each["speed"]["median"] == pytest.approx(0.75, abs=0.05)
    first, second, third = made["machines"]
    assert set(first["changes"]) == {"same"}
    assert second["changes"]["slower"] == len(made["changes"])
    assert (third["changes"], third["compared"]) == ({}, "machine c is not in the earlier set")
    outcome = compare("--against", id_of(8))
    assert outcome.status == 1
    assert f"slower than in {id_of(8)}" in outcome.out.splitlines()[0]
    assert compare(id_of(8), "--against", id_of(9)).status == 0, "it was slower there, so it is faster here"


def test_an_earlier_set_of_other_machines_says_nothing_of_these(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 8, {"cpu/a": machine(monkeypatch, 1, "z", avx2=0.8)})
    filled(tmp_path, 9, {"cpu/a": machine(monkeypatch, 2, "a", avx2=0.1)})
    outcome = compare("--against", id_of(8))
    assert outcome.status == 0
    assert "machine a is not in the earlier set" in outcome.out


def test_sets_are_merged_and_each_run_counts_once(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = machine(monkeypatch, 1, "a", "2026-12-01T00:00:00+00:00", avx2=0.2, scalar=0.1)
    filled(tmp_path, 8, {"cpu/a": slow})
    filled(
        tmp_path, 9, {"cpu/a": machine(monkeypatch, 3, "a", avx2=0.8), "cpu/b": machine(monkeypatch, 4, "b", avx2=0.5)}
    )
    made = found(compare("--json", id_of(9), id_of(8)))
    assert made["sets"] == [id_of(9), id_of(8)]
    first, second = made["machines"]
    assert (first["label"], first["records"], first["runs"]) == ("cpu/a", [id_of(1), id_of(3)], 2 * len(SIZES))
    assert (second["label"], second["runs"]) == ("cpu/b", len(SIZES))
    assert made["repeated"] == len(SIZES), "avx2 was run twice on machine a"
    assert all(row["cells"][0]["ns"] < row["cells"][1]["ns"] for row in made["rows"]), "the newer Run counts"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "fleet" / id_of(9), copy)
    again = found(compare("--json", id_of(9), str(copy)))
    assert [each["runs"] for each in again["machines"]] == [len(SIZES)] * 2
    assert again["repeated"] == 0, "it is the same Record"


def test_kinds_of_one_name_on_two_machines_stay_apart(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 8, {"cpu/a": machine(monkeypatch, 1, "x", avx2=0.8)})
    filled(tmp_path, 9, {"cpu/a": machine(monkeypatch, 2, "y", avx2=0.5)})
    made = found(compare("--json", id_of(8), id_of(9)))
    assert [each["label"] for each in made["machines"]] == ["cpu/a (x)", "cpu/a (y)"]


def test_a_folder_of_records_is_a_set(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "mine")
    store.runs.mkdir(parents=True)
    for number, name in ((1, "a"), (2, "b")):
        made = machine(monkeypatch, number, name, avx2=0.5)
        store.path(made.id).write_text(with_digest(made))
    made_of_them = found(compare("--json", str(tmp_path / "mine")))
    assert [each["label"] for each in made_of_them["machines"]] == ["cpu/a", "cpu/b"]
    assert [each["kind"] for each in made_of_them["machines"]] == ["", ""]


def test_what_is_changed_or_missing_is_left_out_and_said(
    tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {f"cpu/{name}": machine(monkeypatch, number, name, avx2=0.5) for number, name in enumerate("abcd", start=1)}
    lied = of["cpu/d"].runs[0]
    assert lied.performance.cold is not None
    timing = lied.performance.cold.timing.model_copy(update={"median_ns": 1.0})
    cold = lied.performance.cold.model_copy(update={"timing": timing})
    faster = changed(lied, performance=lied.performance.model_copy(update={"cold": cold}))
    of["cpu/d"] = of["cpu/d"].model_copy(update={"runs": (faster, *of["cpu/d"].runs[1:])})
    folder = filled(tmp_path, 9, of)
    path = folder / "runs" / f"{id_of(1)}.json"
    path.write_text(path.read_text().replace('"seed":20250311', '"seed":20250312'))
    (folder / "runs" / f"{id_of(2)}.json").unlink()
    outcome = compare()
    assert "1 machine on 2 workloads, 3 Records left out" in outcome.out.splitlines()[0]
    for text in ("the file was changed after it was written", f"{id_of(2)}.json: is missing", "NOT BELIEVED"):
        assert text in outcome.out
    assert [each["label"] for each in found(compare("--json"))["machines"]] == ["cpu/c"]


def test_bad_arguments(tmp_path: Path, compare: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = compare()
    assert outcome.status == 2
    assert "next: make one with `tritmark fleet run`" in outcome.err
    filled(tmp_path, 9, {}, {"cpu/a": "no worker was left"})
    outcome = compare()
    assert outcome.status == 2
    assert "no Record with Runs: i2s_quantize on cpu/a: no worker was left" in outcome.err
    filled(tmp_path, 10, {"cpu/a": machine(monkeypatch, 1, "a", avx2=0.5)})
    outcome = compare("--against", id_of(10))
    assert outcome.status == 2
    assert "is among the sets themselves" in outcome.err
