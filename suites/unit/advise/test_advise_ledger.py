"""The ledger of predictions and outcomes, the score of the rules on this project's kernels, and the ratios that rules
use."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tritmark.harness.advise.advise import advise
from tritmark.harness.advise.ledger import GOAL, Ledger, LedgerEntry, MeasuredGain, add, read, text
from tritmark.harness.advise.outcome import follow_up, inside, later, ledger_of, settle
from tritmark.harness.advise.rules import RULES
from tritmark.harness.cli import app
from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.measure.scaling import counts, plain, scaled
from tritmark.harness.record import Gain, Proposal, Record, with_digest
from tritmark.harness.spec import Launch, ThreadTimes
from tritmark.harness.store import Store

ROOT = Path(__file__).parents[3]


def outcome(rule: str = "rule", workload: str = "w", measured: float = 1.5, change: str = "done") -> LedgerEntry:
    return LedgerEntry(
        rule=rule,
        kernel="cpu/op/none/int8/v1",
        workload=workload,
        threads=2,
        machine="m",
        before="a",
        after="b",
        predicted=Gain(low=1.2, high=2.0),
        measured=MeasuredGain(median=measured, low=measured, high=measured),
        change=change,
    )


def test_a_hit_lies_in_the_interval_and_was_made() -> None:
    assert outcome().hit
    assert not outcome(measured=2.1).hit
    assert not outcome(measured=0.9).hit
    assert not outcome(change="").hit
    assert inside(()) is None
    assert inside((outcome(), outcome(measured=3.0))) == 0.5


def test_a_rule_that_keeps_its_promises_counts_in_full_and_one_that_misses_less() -> None:
    def weight(hits: int, misses: int) -> float:
        found = [outcome(workload=f"h{index}") for index in range(hits)] + [
            outcome(workload=f"m{index}", measured=9) for index in range(misses)
        ]
        return Ledger(tuple(found)).standing("rule").weight

    assert weight(0, 0) == weight(7, 3) == weight(20, 0) == 1
    assert weight(0, 1) == pytest.approx(1 / 2 / GOAL)
    assert weight(0, 9) == pytest.approx(1 / 10 / GOAL)
    assert weight(3, 7) > weight(0, 10)
    ledger = Ledger((outcome(measured=9, workload="1"), outcome(measured=9, workload="2")))
    assert ledger.weights() == {"rule": pytest.approx(1 / 3 / GOAL)}
    assert "0 of 2 predictions correct" in ledger.summaries()["rule"]
    assert "ranked down" in ledger.summaries()["rule"]
    assert str(ledger.standing("other")) == "no outcome yet"


def test_the_file_is_sorted_one_outcome_a_line_and_keeps_each_promise_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    assert read(path) == Ledger()
    add(path, [outcome("b"), outcome("a")])
    add(path, [outcome("b", measured=1.7), outcome("c")])
    ledger = read(path)
    assert [each.rule for each in ledger.outcomes] == ["a", "b", "c"]
    assert ledger.outcomes[1].measured.median == 1.7
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum('"rule"' in line for line in lines) == 3
    assert text(Ledger(tuple(reversed(ledger.outcomes)))) == path.read_text(encoding="utf-8")
    assert json.loads(text(Ledger()))["outcomes"] == []


@pytest.mark.parametrize(
    "held", ["{", "[]", '{"version": 2, "outcomes": []}', '{"version": 1, "outcomes": [{"rule": 1}]}', "\x00"]
)
def test_a_ledger_that_is_corrupt_or_newer_is_refused_and_stays(tmp_path: Path, held: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(held, encoding="utf-8")
    with pytest.raises(RecordError, match="ledger"):
        add(path, [outcome()])
    assert path.read_text(encoding="utf-8") == held


def test_two_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda index: add(path, [outcome(workload=str(index))]), range(20)))
    assert len(read(path).outcomes) == 20


def faster(record: Record, times: float, rule: str) -> Record:
    """A later Record in which each kernel is faster by a factor."""
    runs = []
    for run in record.runs:
        hot = run.performance.hot
        if hot is not None:
            timing = {name: getattr(hot.timing, name) / times for name in ("median_ns", "low_ns", "high_ns")}
            ratio = {name: getattr(hot.against.fraction, name) * times for name in ("median", "low", "high")}
            against = hot.against.model_copy(update={"fraction": hot.against.fraction.model_copy(update=ratio)})
            changed = hot.model_copy(update={"timing": hot.timing.model_copy(update=timing), "against": against})
            runs.append(run.model_copy(update={"performance": run.performance.model_copy(update={"hot": changed})}))
    return record.model_copy(update={"id": "20250312T142233Z-00004f1d", "runs": tuple(runs), "addresses": rule})


def test_a_later_record_that_addresses_a_rule_settles_its_promises(tmp_path: Path, gpu_record: Record) -> None:
    store = Store(tmp_path)
    store.runs.mkdir(parents=True)
    promised = [each for each in advise(gpu_record) if each.rule == "latency-bound"]
    changed = faster(gpu_record, 2.0, "latency-bound")
    for record in (gpu_record, changed):
        store.path(record.id).write_text(with_digest(record), encoding="utf-8")
    found = settle(store, changed)
    assert len(found) == len(promised) > 0
    assert [each.measured.median for each in found] == [pytest.approx(2.0)] * len(found)
    assert {each.hit for each in found} == {each.predicted.low <= 2 <= each.predicted.high for each in found}
    assert ledger_of(store).outcomes == Ledger(found).outcomes


def test_what_follows_nothing_is_refused(tmp_path: Path, gpu_record: Record) -> None:
    store = Store(tmp_path)
    store.runs.mkdir(parents=True)
    changed = faster(gpu_record, 2.0, "latency-bound")
    with pytest.raises(UsageError, match="no earlier Record"):
        settle(store, changed)
    elsewhere = changed.model_copy(update={"machine": changed.machine.model_copy(update={"id": "another"})})
    assert follow_up(gpu_record, elsewhere) == ()
    assert follow_up(gpu_record, changed.model_copy(update={"addresses": "no-such-rule"})) == ()


def test_a_gain_is_settled_by_the_figure_that_it_is_of(gpu_record: Record) -> None:
    """The rule `cold` predicts the cold time; a change of the hot time is no outcome of it."""
    before = next(run for run in gpu_record.runs if run.performance.hot and run.performance.cold)
    hot, cold = before.performance.hot, before.performance.cold
    assert hot is not None
    assert cold is not None
    changed = faster(gpu_record, 3.0, "cold")
    after = next(run for run in changed.runs if run.place == before.place)
    proposal = Proposal(
        rule="cold",
        run=before.id,
        kernel=before.kernel,
        workload=before.workload.id,
        title="",
        evidence=(),
        gain=Gain(low=1, high=2),
        ceiling=9,
        edit="",
        reproduce="",
        verify="",
    )
    assert later(gpu_record, proposal, before, changed, after).measured.median == pytest.approx(1)
    hot_rule = proposal.model_copy(update={"rule": "latency-bound"})
    assert later(gpu_record, hot_rule, before, changed, after).measured.median == pytest.approx(3)


@pytest.mark.parametrize("rule", ["graph", "python-call", "transfer"])
def test_the_gain_of_a_caller_has_no_outcome(gpu_record: Record, rule: str, tmp_path: Path) -> None:
    """No figure of a Record would change, and an interval from 1 would call that a hit."""
    assert follow_up(gpu_record, faster(gpu_record, 2.0, rule)) == ()
    done = CliRunner().invoke(app, ["run", "--addresses", rule, "--out", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "which no figure of a Record shows" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_only_what_can_be_settled_is_verified_by_addresses(gpu_record: Record) -> None:
    figures = {rule.name: rule.figure for rule in RULES}
    proposals = advise(gpu_record)
    assert proposals
    for each in proposals:
        assert ("--addresses" in each.verify) == bool(figures[each.rule])


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "suites" / "advise"))
    return importlib.import_module("score")


def test_every_change_that_is_claimed_stands_in_its_kernels_story(score: Any) -> None:
    changes = score.made()
    assert len(changes) > 10
    for change in changes:
        assert change.rules
        assert change.missing() == ()


@pytest.mark.nightly
def test_on_this_projects_own_kernels_the_advice_names_what_was_done(
    score: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("sys.argv", ["score.py"])
    assert score.main() == 0
    told = capsys.readouterr().out
    assert "each about a change that was made: yes" in told
    assert "latency-bound" in told


@pytest.mark.nightly
def test_a_change_that_nobody_made_is_a_miss(score: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["score.py"])
    monkeypatch.setattr(score.Made, "concerns", lambda self, run: run.variant == "v1" and self.op == run.op)
    found = score.made()
    monkeypatch.setattr(
        score,
        "made",
        lambda: [score.Made(each.op, each.device, each.before, each.after, each.story, {}) for each in found],
    )
    assert score.main() == 1
    assert "no such change was made" in capsys.readouterr().out


@dataclass
class Kernel:
    """A launch that takes `ns` by a simulated clock."""

    ns: float
    runs: int = 0
    pointer: int | None = 1

    def run(self) -> None:
        self.runs += 1


@dataclass
class MemoryReading:
    """A clock that adds up the times of the launches."""

    extra: float = 0.0
    name: str = "told"
    recorded: bool = True
    asked: list[int] = field(default_factory=list)

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        self.asked.append(calls)
        return round(calls * (launches[0].ns + self.extra))  # type: ignore[attr-defined, no-any-return]


@dataclass
class Machinery:
    """The part of a Device that the ratios need."""

    plain_clock: Any = None
    recorded: bool = True
    thread_times: Any = None

    def clock(self) -> MemoryReading:
        return MemoryReading(recorded=self.recorded)


def test_threads_are_tried_in_powers_of_two_at_the_cores_and_all() -> None:
    assert counts(1, 1) == ()
    assert counts(2, 2) == (2,)
    assert counts(12, 6) == (2, 4, 6, 8, 12)
    assert counts(16, 32) == (2, 4, 8, 16)


def test_scaling_is_the_time_on_one_thread_over_that_on_several() -> None:
    found = scaled(lambda threads: Kernel(80_000 / threads**0.5), Machinery(), (4, 16), np.random.default_rng(0))  # type: ignore[arg-type, return-value]
    assert [each.threads for each in found] == [4, 16]
    assert [each.speedup.median for each in found] == [pytest.approx(2), pytest.approx(4)]
    assert [each.efficiency for each in found] == [pytest.approx(0.5), pytest.approx(0.25)]
    assert {(each.balance, each.utilization) for each in found} == {(None, None)}, "not reported"


@pytest.mark.parametrize(
    ("told", "balance", "utilization"),
    [
        (ThreadTimes(wall_ns=100, busy_ns=300, shared=2, mean_ns=60, most_ns=80), 0.75, 0.75),
        (ThreadTimes(wall_ns=100, busy_ns=100, shared=0, mean_ns=0, most_ns=0), None, 0.25),
        (None, None, None),
    ],
)
def test_what_threads_do_is_told_where_the_device_knows(
    told: ThreadTimes | None, balance: float | None, utilization: float | None
) -> None:
    def thread_times(calls: Callable[[], object]) -> ThreadTimes | None:
        calls()
        return told

    device: Any = Machinery(thread_times=thread_times)
    kernels: Any = lambda threads: Kernel(80_000 / threads**0.5)  # noqa: E731
    (found,) = scaled(kernels, device, (4,), np.random.default_rng(0))
    assert (found.balance, found.utilization) == (balance, utilization)


def test_plain_is_the_time_of_launches_one_by_one_over_that_in_a_graph() -> None:
    kernel: Any = Kernel(2000)
    assert plain(kernel, Machinery(), np.random.default_rng(0)) is None  # type: ignore[arg-type]
    long: Any = Machinery(lambda: MemoryReading(extra=4000), recorded=False)
    assert plain(kernel, long, np.random.default_rng(0)) is None
    found = plain(kernel, Machinery(lambda: MemoryReading(extra=4000)), np.random.default_rng(0))  # type: ignore[arg-type]
    assert found is not None
    assert found.median == pytest.approx(3)
