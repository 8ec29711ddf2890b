"""suites/advise/follow.py: changes of the history as outcomes, without building or measuring any."""

from __future__ import annotations

import importlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.ledger import LedgerEntry, MeasuredGain
from tritmark.harness.errors import UsageError
from tritmark.harness.machine.repository import git
from tritmark.harness.providers import installed
from tritmark.harness.record import Gain, Record, with_digest

ROOT = Path(__file__).parents[3]
BEFORE, AFTER = "20250311T142233Z-00004f1c", "20250312T142233Z-00004f1d"


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "suites" / "advise"))
    return importlib.import_module("follow")


def test_there_are_enough_changes_of_kernels_that_exist(follow: Any) -> None:
    changes = follow.followed()
    ids = {variant.id for variant in installed().registry.variants}
    assert {each.device for each in changes} == {"cpu", "cuda"}
    predictions = sum(len(each.kernels) * len(each.rows) * len(each.shapes) for each in changes)
    assert predictions >= 2 * follow.FEWEST, "a rule does not predict a gain for each"
    assert len({each.commit for each in changes}) == len(changes) >= follow.FEWEST
    for each in changes:
        assert set(each.kernels) <= ids
        assert all(kernel.startswith(f"{each.device}/") for kernel in each.kernels)


def test_each_change_is_a_commit_with_that_subject(follow: Any) -> None:
    try:
        if git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
            pytest.skip("the clone has no history")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone")
    changes = follow.followed()
    assert [each.missing(ROOT) for each in changes if each.missing(ROOT)] == []
    assert "its subject lacks" in replace(changes[0], change="another subject").missing(ROOT)
    assert replace(changes[0], commit="0" * 12).missing(ROOT)


def test_a_suite_has_the_workloads_of_the_change(follow: Any, tmp_path: Path) -> None:
    for change in follow.followed():
        for kernel in change.kernels:
            path = tmp_path / "suite.toml"
            path.write_text(follow.suite(change, kernel), encoding="utf-8")
            selected = installed().suite(str(path)).selected
            wanted = {(m, each["N"], each["K"]) for m in change.rows for each in change.shapes}
            assert {tuple(item.workload.axes[axis] for axis in "MNK") for item in selected} == wanted
            _, _, form, dtype, _ = kernel.split("/")
            assert all(item.workload.measure and item.admits(form, dtype, change.device) for item in selected)
            assert not any(item.admits("none", dtype, change.device) for item in selected)


class Runs:
    """In place of `tritmark run`: Records of a kernel that gets faster by a factor."""

    def __init__(self, record: Record, times: float) -> None:
        self.record, self.times = record, times
        self.asked: list[tuple[str, ...]] = []
        self.stop_at = 0

    def __call__(self, change: Any, kernel: str, commit: str, folder: Path, given: Path, *options: str) -> str:
        if len(self.asked) + 1 == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append((commit, *options))
        number = len(self.asked)
        made = (
            self.record if commit.endswith("^") else quicker(self.record, self.times, f"{AFTER}{number}", *options[1:])
        )
        runs = folder / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        (runs / f"{made.id}.json").write_text(with_digest(made), encoding="utf-8")
        return made.id


def quicker(record: Record, times: float, id: str, rule: str) -> Record:
    runs = []
    for run in record.runs:
        hot = run.performance.hot
        if hot is not None:
            ratio = {name: getattr(hot.against.fraction, name) * times for name in ("median", "low", "high")}
            fraction = hot.against.fraction.model_copy(update=ratio)
            hot = hot.model_copy(update={"against": hot.against.model_copy(update={"fraction": fraction})})
        runs.append(run.model_copy(update={"performance": run.performance.model_copy(update={"hot": hot})}))
    return record.model_copy(update={"id": id, "runs": tuple(runs), "addresses": rule})


@pytest.fixture(autouse=True)
def no_ceilings(follow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "own_ceilings", lambda out: ())


@pytest.fixture
def change(follow: Any, gpu_record: Record) -> Any:
    """A change that two rules predict, and one that predicts nothing."""
    rules = list(dict.fromkeys(each.rule for each in advise(gpu_record)))
    assert "latency-bound" in rules
    first = follow.followed()[0]
    return replace(first, commit="abc", change="Speed up", rules=("latency-bound", "no-such-rule"))


def test_a_change_is_measured_once_and_settled(
    follow: Any, change: Any, gpu_record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(gpu_record, 2.0)
    monkeypatch.setattr(follow, "_run", runs)
    progress = follow.measured(change, change.kernels[0], tmp_path, tmp_path)
    assert runs.asked == [("abc^",), ("abc", "--addresses", "latency-bound")], "the commit before comes first"
    found = list(progress.outcomes(change))
    promised = [each for each in advise(gpu_record) if each.rule == "latency-bound"]
    assert len(found) == len(promised) > 0
    assert [each.measured.median for each in found] == [pytest.approx(2.0)] * len(found)
    assert {each.change for each in found} == {"addressed: abc, Speed up"}
    again = follow.measured(change, change.kernels[0], tmp_path, tmp_path)
    assert len(runs.asked) == 2, "nothing is measured twice"
    assert list(again.outcomes(change)) == found


def test_an_interrupted_call_continues(
    follow: Any, change: Any, gpu_record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(gpu_record, 2.0)
    runs.stop_at = 2
    monkeypatch.setattr(follow, "_run", runs)
    with pytest.raises(KeyboardInterrupt):
        follow.measured(change, change.kernels[0], tmp_path, tmp_path)
    assert list(follow.Progress.of(tmp_path / "abc" / change.kernels[0].replace("/", ".")).outcomes(change)) == []
    runs.stop_at = 0
    assert list(follow.measured(change, change.kernels[0], tmp_path, tmp_path).outcomes(change))
    assert [commit for commit, *_ in runs.asked] == ["abc^", "abc"]


def test_a_kernel_that_is_missing_here_is_not_run(follow: Any) -> None:
    assert follow.refusal("cpu/ternary_matmul/tile64/float32/scalar") == ""
    assert follow.refusal("cpu/ternary_matmul/tile64/float32/gone") == "no such kernel today"


def outcome(number: int, measured: float = 1.5, high: float = 2.0) -> LedgerEntry:
    return LedgerEntry(
        rule="latency-bound",
        kernel="cpu/op/none/int8/v1",
        workload=f"w{number}",
        threads=1,
        machine="m",
        before="a",
        after="b",
        predicted=Gain(low=1.2, high=high),
        measured=MeasuredGain(median=measured, low=measured, high=measured),
        change="addressed: abc",
    )


def test_the_goals(follow: Any) -> None:
    enough = [outcome(number) for number in range(30)]
    assert follow.summary(enough)[1]
    assert (
        "30 outcomes (goal 30), 100.0 % inside (goal 80 %), median width 1.67x (goal 3x)" in follow.summary(enough)[0]
    )
    assert not follow.summary([])[1]
    assert not follow.summary(enough[:29])[1], "too few"
    missed = [*enough[:23], *(outcome(number, measured=0.9) for number in range(23, 30))]
    assert not follow.summary(missed)[1], "too many outside"
    assert follow.summary([*enough[:24], *missed[24:]])[1]
    assert not follow.summary([outcome(number, high=9.0) for number in range(30)])[1], "intervals too wide"
    assert "MISS" in follow.summary(missed)[0]


def test_a_run_without_a_record_is_an_error(
    follow: Any, change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Build:
        site = tmp_path

    monkeypatch.setattr(follow, "built", lambda *given, **more: Build)
    with pytest.raises(UsageError, match=r"wrote no Record \(status 1\)[\s\S]*No module named 'tritmark'"):
        follow._run(change, change.kernels[0], "abc", tmp_path / "here", tmp_path)
