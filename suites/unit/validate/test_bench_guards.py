"""Guards of the timed loop: audits of fresh data, late outputs and threads."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from simulated_bench import (
    AXES,
    CHANGES,
    DEVICE,
    DOUBLE,
    KEY,
    MATERIAL,
    SMALL_TURN,
    TURN,
    N,
    SimulatedChangingClock,
    SimulatedClock,
    SimulatedLaunch,
    Work,
    honest,
    measured,
)

from tritmark.harness.errors import CandidateError, DeviceFaultError, Failure, InsufficientMemoryError, WorkerError
from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.measure.statistics import LEAST_SAMPLES
from tritmark.harness.measure.survey import survey
from tritmark.harness.record import Performance, Status
from tritmark.harness.spec import ArrayChange, Arrays, Axes, Launch, Tensor, Tier, Variant, Workload
from tritmark.harness.validate.audit import Audited
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.confirm import STATISTICAL, audit_faults, confirm, part_faults, statistical
from tritmark.harness.validate.guard_names import Complaint, Guard, guard_of, in_order
from tritmark.harness.validate.performance import Bench
from tritmark.harness.validate.pieces import exchangeable
from tritmark.harness.validate.sets import Sets

pytestmark = pytest.mark.timing


@pytest.fixture(scope="module")
def cases() -> Cases:
    return MATERIAL.cases(KEY)


def faults_of(cases: Cases, bench: Bench) -> list[Complaint]:
    """Faults that the process with the expected values finds in the outputs that a Bench kept."""
    return [*audit_faults(cases, bench.audited, CHANGES), *part_faults(cases, bench.parts, CHANGES)]


# Names

KINDS = {kind: Guard.ERROR if kind is Failure.ENVIRONMENT else Guard(kind.value) for kind in Failure}
"""A fault of the session belongs to no guard: it ends the command, and counts as an error until then."""


@pytest.mark.parametrize(
    ("error", "guard"),
    [
        (RuntimeError("killed by SIGSEGV"), Guard.ERROR),
        (MemoryError("1"), Guard.MEMORY),
        (InsufficientMemoryError(what="x", required=2, available=1, next_step="less"), Guard.MEMORY),
        (DeviceFaultError("a race", next_step="a barrier"), Guard.DEVICE),
        *((WorkerError(kind, "RuntimeError: was killed"), guard) for kind, guard in KINDS.items()),
        *((CandidateError(kind, "DeviceFaultError", "a race", ""), guard) for kind, guard in KINDS.items()),
    ],
)
def test_the_guard_of_an_exception_follows_from_its_class_and_kind(error: Exception, guard: Guard) -> None:
    assert guard_of(error) is guard


@given(st.lists(st.sampled_from(Guard) | st.text()))
def test_a_verdict_keeps_guards_only_each_once_and_in_order(names: list[str]) -> None:
    kept = in_order(names)
    assert set(kept) == set(names) & set(Guard)
    assert [Guard(name) for name in kept] == [guard for guard in Guard if guard in kept]
    assert all(type(name) is str for name in kept)


@given(st.sets(st.sampled_from(Guard)), st.sets(st.sampled_from(Guard), min_size=1))
def test_what_a_candidate_says_hides_nothing_that_is_found_here(claimed: set[Guard], found: set[Guard]) -> None:
    told = Performance(status=Status.PASS, caught_by=in_order(claimed))
    judged = confirm(told, [Complaint(guard, "wrong") for guard in found], lambda *args: None, threads=1, pid=None)
    assert (judged.status, judged.doubted) == (Status.FAIL, True)
    assert judged.caught_by == in_order(claimed | found)
    assert statistical(judged) == (claimed | found <= STATISTICAL)


# Audits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("turn", [TURN, SMALL_TURN], ids=["cold and hot", "one set"])
def test_an_honest_kernel_passes_every_audit(cases: Cases, seed: int, turn: Rotation) -> None:
    performance, bench = measured(cases, honest, seed=seed, turn=turn)
    assert performance.status is Status.PASS, performance.reason
    assert {look.when.split(",")[0] for look in bench.audited} >= {"the first call", "a single call"}
    assert {look.case for look in bench.audited} == {0, 1}
    looked_at = {look.when.split(",")[0] for look in (*bench.audited, *bench.parts)}  # type: ignore[attr-defined]
    assert looked_at >= ({"cold"} if turn is TURN else {"hot"})
    assert faults_of(cases, bench) == []
    # Outputs with the same bits as earlier ones are not kept.
    assert len(bench.audited) <= 4
    assert len(bench.parts) <= 2 * 2 * len(CHANGES.pieces.each)


def test_each_cold_set_has_a_mixture_of_its_own(cases: Cases) -> None:
    met: dict[int, bytes] = {}

    def looks(inputs: Arrays, outputs: Arrays, run: int) -> None:
        if run > 1:  # the first calls, which only calibrate, are on the first data
            met.setdefault(outputs["y"].ctypes.data, inputs["x"].tobytes())
        honest(inputs, outputs, run)

    performance, bench = measured(cases, looks)
    assert performance.status is Status.PASS, performance.reason
    sets = bench._sets.each
    assert len(set(met.values())) > len(sets) / 2 > 1


def test_a_kernel_that_answers_from_the_set_before_is_caught(cases: Cases) -> None:
    before: dict[str, Any] = {}

    def answers(inputs: Arrays, outputs: Arrays, run: int) -> None:
        if run > 2 and before and np.array_equal(inputs["x"][::50], before["x"][::50]):
            outputs["y"][...] = before["y"]
        else:
            honest(inputs, outputs, run)
        before.update(x=inputs["x"].copy(), y=outputs["y"].copy())

    performance, bench = measured(cases, answers)
    assert performance.status is Status.FAIL or faults_of(cases, bench)


class HeldUpClock(SimulatedChangingClock):
    """Most samples of calls over `kernel_ns`, which are the probes', take twice as long."""

    kernel_ns = 2500
    samples = 0

    def sample(self, launches: Sequence[Any], first: int, calls: int) -> int:
        self.samples += 1
        slow = launches[0].cost != self.kernel_ns and self.samples % 8
        return super().sample(launches, first, calls) * (2 if slow else 1)


def test_a_probe_that_others_hold_up_lost_and_the_kernel_passes(cases: Cases) -> None:
    held_up = replace(DEVICE, type="held up", clock=HeldUpClock)
    # Enough pairs on a busy machine too: with few, the interval includes the one sample in eight without interference.
    performance, _ = measured(cases, honest, device=held_up, cost=HeldUpClock.kernel_ns, budget_s=1.0)
    hot = performance.hot
    assert hot is not None
    assert hot.against.fraction.low > 1.5
    assert hot.against.lost
    assert performance.status is Status.PASS
    assert re.search(r"hot: the (read|write) probe lost, at \d+ %", performance.reason)


def test_measuring_again_begins_with_the_first_data(cases: Cases) -> None:
    _, bench = measured(cases, honest)
    bound = []

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        bound.append(inputs["x"].copy())
        return SimulatedLaunch(partial(honest, inputs, outputs))

    bench.measure(Variant(key=KEY, name="simulated", tier=Tier.BASELINE, summary="", bind=bind), 1)
    assert all(np.array_equal(each, cases.first.inputs["x"]) for each in bound)
    assert faults_of(cases, bench) == []


def test_results_of_other_data_are_found(cases: Cases) -> None:
    def stale(inputs: Arrays, outputs: Arrays, run: int) -> None:
        outputs["y"][...] = cases.first.expected[0].values

    performance, bench = measured(cases, stale)
    assert performance.status is Status.PASS  # that process has no expected values
    faults = audit_faults(cases, bench.audited, CHANGES)
    assert faults
    assert all(
        re.fullmatch(r"guard audit: (cold|hot|a single call).*: y\[\d+\] is -?\d+, expected -?\d+", str(fault))
        for fault in faults
    )
    told = confirm(performance, faults_of(cases, bench), bench.lap, threads=1, pid=None)
    assert told.status is Status.FAIL
    assert told.doubted
    assert told.caught_by == ("audit",)


@pytest.mark.parametrize("last", [1, 2, 20, 60])
def test_work_that_is_left_out_from_some_call_on_is_found(cases: Cases, last: int) -> None:
    def lazy(inputs: Arrays, outputs: Arrays, run: int) -> None:
        if run <= last:
            honest(inputs, outputs, run)

    performance, _ = measured(cases, lazy, turn=SMALL_TURN)
    assert performance.status is Status.FAIL
    assert "guard audit: hot: a call of the timed loop did not write y" in performance.reason


def test_half_of_the_work_left_out_is_found_by_the_expected_values(cases: Cases) -> None:
    def half(inputs: Arrays, outputs: Arrays, run: int) -> None:
        part = slice(None) if run < 5 else slice(N // 2)
        np.multiply(inputs["x"][part], 2, out=outputs["y"][part])

    _, bench = measured(cases, half, turn=SMALL_TURN)
    assert any(f"y[{N // 2}] is" in fault.text for fault in faults_of(cases, bench))


def test_of_large_outputs_a_piece_is_kept(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("audit", "confirm"):
        monkeypatch.setattr(f"tritmark.harness.validate.{module}.PIECE", 400)
    monkeypatch.setattr("tritmark.harness.validate.audit.LARGE", 1)
    _, bench = measured(cases, honest)
    assert {look.when.split(",")[0] for look in bench.audited} >= {"the first call", "cold", "a single call"}
    assert {look.outputs["y"].size for look in bench.audited} == {100}
    assert faults_of(cases, bench) == []
    look = bench.audited[0]
    look.outputs["y"][7] += 1
    (fault,) = audit_faults(cases, [look])
    assert f"y[{look.begin['y'] + 7}] is" in fault.text


def test_a_changed_input_is_found(cases: Cases) -> None:
    def spoil(inputs: Arrays, outputs: Arrays, run: int) -> None:
        honest(inputs, outputs, run)
        if run > 4:
            inputs["x"][-1] = 1000

    performance, _ = measured(cases, spoil)
    assert performance.status is Status.FAIL
    assert "guard inputs: hot: a call of the timed loop changed x" in performance.reason


def test_moments_and_sets_differ_with_the_seed(cases: Cases) -> None:
    moments = {tuple(look.when for look in measured(cases, honest, seed=seed)[1].parts) for seed in range(4)}
    assert len(moments) == 4


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (Audited("hot", 2, {}, {}), "unknown data 2"),
        (Audited("hot", 0, {}, {}), "y is no int32 array"),
        (Audited("hot", 0, {"y": np.zeros(N, np.int64)}, {"y": 0}), "y is no int32 array"),
        (Audited("hot", 0, {"y": np.zeros(N - 1, np.int32)}, {"y": 1}), "y is no int32 array"),
        (Audited("hot", 0, {"y": np.zeros(N, np.int32)}, {"y": 1}), "y is no int32 array"),
    ],
)
def test_what_is_no_output_is_refused(cases: Cases, look: Audited, told: str) -> None:
    (fault,) = audit_faults(cases, [look])
    assert told in fault.text


# Pieces of the inputs that are exchanged before samples


class Keeps:
    """Keeps results, and recognizes data by a few elements."""

    def __init__(self, mark: Callable[[Any], Any]) -> None:
        self.known: dict[Any, Any] = {}
        self.mark = mark

    def __call__(self, inputs: Arrays, outputs: Arrays, run: int) -> None:
        mark = self.mark(inputs["x"])
        if mark not in self.known:
            self.known[mark] = inputs["x"] * 2
        outputs["y"][...] = self.known[mark]


def every_other(inputs: Arrays, outputs: Arrays, run: int) -> None:
    if run % 2 or run < 5:
        honest(inputs, outputs, run)


def unless_right(inputs: Arrays, outputs: Arrays, run: int) -> None:
    """Works if a few outputs do not match their inputs, as after poison."""
    x, y = inputs["x"][:: N // 9], outputs["y"][:: N // 9]
    if (y != 2 * x).any():
        honest(inputs, outputs, run)


class InBursts:
    """Works after a pause, and skips work within a burst of calls."""

    last = 0.0

    def __call__(self, inputs: Arrays, outputs: Arrays, run: int) -> None:
        if time.perf_counter() - self.last > 1e-4 or run < 5:
            honest(inputs, outputs, run)
        self.last = time.perf_counter()


class ByPart:
    """Recomputes a part if its first element changed."""

    before: Any = None

    def __call__(self, inputs: Arrays, outputs: Arrays, run: int) -> None:
        x, y = inputs["x"], outputs["y"]
        now = x[::100].copy()
        if self.before is None or run < 4:
            y[...] = 2 * x
        else:
            for part in np.flatnonzero(now != self.before):
                y[100 * part : 100 * part + 100] = 2 * x[100 * part : 100 * part + 100]
        self.before = now


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("turn", [TURN, SMALL_TURN], ids=["cold and hot", "one set"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Keeps(lambda x: (x.ctypes.data, x[:4].tobytes())),
        lambda: Keeps(lambda x: (x[0], x[-1], x[N // 2])),
        lambda: Keeps(lambda x: x[:: N // 16].tobytes()),
        lambda: every_other,
        lambda: unless_right,
        ByPart,
    ],
    ids=["by pointer and a few", "by three", "by sixteen", "every other", "unless right", "by part"],
)
def test_work_that_is_skipped_is_seen_once_pieces_are_exchanged(
    cases: Cases, make: Callable[[], Work], turn: Rotation, seed: int
) -> None:
    _, bench = measured(cases, make(), seed=seed, turn=turn)
    assert any(fault.guard is Guard.AUDIT for fault in faults_of(cases, bench))


@pytest.mark.parametrize("clock", [SimulatedChangingClock, SimulatedClock], ids=["changes arrays", "does not"])
def test_a_kernel_that_is_lazy_in_bursts_only_is_seen(cases: Cases, clock: type[SimulatedClock]) -> None:
    """Also on a device whose clock cannot change arrays: the change is then made between two samples."""
    _, bench = measured(cases, InBursts(), turn=SMALL_TURN, device=replace(DEVICE, clock=clock))
    assert faults_of(cases, bench)


@pytest.mark.parametrize("cost", [2_500, 200_000], ids=["many calls", "one"])
def test_a_call_behind_a_change_follows_the_one_before_at_once(cases: Cases, cost: int) -> None:
    """Also in a sample of one call: the clock makes the untimed call too."""
    asked = list[tuple[int, int, Mapping[str, int]]]()

    class Noting(SimulatedChangingClock):
        def sample_around(
            self, launches: Sequence[Any], first: int, calls: int, before: int, changes: Any, **more: int
        ) -> int:
            asked.append((calls, before, more))
            return super().sample_around(launches, first, calls, before, changes, **more)

    performance, _ = measured(cases, honest, turn=SMALL_TURN, device=replace(DEVICE, clock=Noting), cost=cost)
    assert performance.status is Status.PASS, performance.reason
    assert len(asked) >= LEAST_SAMPLES
    assert all(0 <= before < calls and more == {"warm": 1} for calls, before, more in asked)
    assert {calls for calls, _, _ in asked} == {1} or len({before for _, before, _ in asked}) > 2


def test_making_a_change_ready_is_no_pause_between_calls(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any duration: otherwise a kernel that works only after a pause would be correct after each change."""
    toggle = Sets.toggle

    def slowly(self: Sets, index: int, piece: int, *, spoil: bool) -> list[ArrayChange]:
        time.sleep(0.0005)
        return toggle(self, index, piece, spoil=spoil)

    monkeypatch.setattr(Sets, "toggle", slowly)
    _, bench = measured(cases, InBursts(), turn=SMALL_TURN)
    assert faults_of(cases, bench)


def test_a_rare_wrong_output_of_a_hot_call_is_found(cases: Cases) -> None:
    """A single element in one call of four: the last call of each sample is checked."""

    def rare(inputs: Arrays, outputs: Arrays, run: int) -> None:
        honest(inputs, outputs, run)
        if run % 4 == 3:
            outputs["y"][run % N] += 1

    performance, bench = measured(cases, rare, turn=SMALL_TURN)
    assert performance.status is Status.FAIL or faults_of(cases, bench)


TOTAL = replace(
    DOUBLE,
    independent_axis=None,
    outputs=(Tensor("y", (), "int64", ""),),
    outputs_like=lambda axes, key: {"y": ((), "int64")},
    reference=lambda inputs, axes, key: {"y": np.asarray(inputs["x"].astype(np.int64).sum())},
)
"""An op in which every output depends on every input."""


def test_of_an_op_whose_outputs_hang_together_stretches_are_exchanged() -> None:
    found = exchangeable(TOTAL, KEY, AXES, MATERIAL.logical, tuple(MATERIAL.encoded("none")), np.random.default_rng(0))
    assert not found.pieces.together
    assert len(found.pieces.each) == len(found.expected[0]) == 3
    for piece, (expected,) in zip(found.pieces.each, found.expected[0], strict=True):
        (part,) = piece.inputs
        x = MATERIAL.logical[0]["x"].copy()
        x[part.begin : part.end] = MATERIAL.logical[1]["x"][part.begin : part.end]
        assert expected.values == x.sum()


@pytest.mark.parametrize("cost", [3_000, 20_000, 200_000])
@pytest.mark.parametrize("seed", range(4))
def test_an_honest_kernel_whose_outputs_hang_together_passes_every_audit(seed: int, cost: int) -> None:
    """Also if one sample calls each set several times, so that a set changes for a later sample before an earlier
    one."""
    material = Material(TOTAL, Workload(op=TOTAL.name, axes=AXES, family="uniform"), 0)
    totals = material.cases(KEY)
    assert isinstance(totals, Cases)
    changes = exchangeable(
        TOTAL, KEY, AXES, material.logical, tuple(material.encoded("none")), np.random.default_rng(0)
    )

    def work(inputs: Arrays, outputs: Arrays, run: int) -> None:
        outputs["y"][...] = inputs["x"].astype(np.int64).sum()

    performance, bench = measured(totals, work, op=TOTAL, changes=changes, seed=seed, cost=cost)
    assert performance.status is Status.PASS, performance.reason
    assert bench.parts
    assert [*audit_faults(totals, bench.audited, changes), *part_faults(totals, bench.parts, changes)] == []


@pytest.mark.parametrize("seed", range(3))
def test_what_is_exchanged_before_a_cold_call_is_cold_again(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Half of the sets are called between a change and the call that follows it."""
    made, changed, between, sets = 0, dict[int, int](), list[int](), set[int]()
    toggle = Sets.toggle

    def seen(self: Sets, index: int, piece: int, *, spoil: bool) -> list[ArrayChange]:
        if made and index:  # the first set is the hot one too
            changed.setdefault(self.each[index].inputs["x"].ctypes.data, made)
        return toggle(self, index, piece, spoil=spoil)

    def work(inputs: Arrays, outputs: Arrays, run: int) -> None:
        nonlocal made
        honest(inputs, outputs, run)
        made += 1
        here = inputs["x"].ctypes.data
        sets.add(here)
        if here in changed:
            between.append(made - 1 - changed.pop(here))

    monkeypatch.setattr(Sets, "toggle", seen)
    performance, bench = measured(cases, work, seed=seed, cost=200_000)  # so that a sample is one call
    assert performance.status is Status.PASS, performance.reason
    assert faults_of(cases, bench) == []
    # Sets that were changed before the first sample wait for the probe's cycle instead.
    after = between[len(sets) // 2 :]
    assert len(after) >= LEAST_SAMPLES
    assert min(after) >= len(sets) // 2


# Late outputs and threads


def test_outputs_written_after_the_call_are_found(cases: Cases) -> None:
    threads: list[threading.Thread] = []

    def later(inputs: Arrays, outputs: Arrays, run: int) -> None:
        def work() -> None:
            time.sleep(0.001)
            honest(inputs, outputs, run)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    performance, _ = measured(cases, later, turn=SMALL_TURN)
    for thread in threads:
        thread.join()
    assert performance.status is Status.FAIL
    assert "guard late: y was written after the call had returned" in performance.reason


def test_a_thread_that_outlives_the_calls_is_found(cases: Cases) -> None:
    ended = threading.Event()

    def start(inputs: Arrays, outputs: Arrays, run: int) -> None:
        honest(inputs, outputs, run)
        if run == 3:
            thread.start()

    thread = threading.Thread(target=ended.wait)
    try:
        performance, _ = measured(cases, start, turn=SMALL_TURN)
    finally:
        ended.set()
        thread.join()
    assert performance.status is Status.FAIL
    assert "guard threads: threads that it started and that outlive its calls: 1" in performance.reason


def test_sets_that_a_second_measurement_did_not_reach_are_not_judged(
    cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their outputs follow from the inputs of the first one."""
    noise = np.random.default_rng(0)
    busy, kernel_ns = True, 300_000

    class BusyAtFirst(SimulatedChangingClock):
        def sample(self, launches: Sequence[Any], first: int, calls: int) -> int:
            slower = (1 if launches[0].cost == kernel_ns else 3) * noise.uniform(1, 20) if busy else 1
            return round(super().sample(launches, first, calls) * slower)

    def probe(buffer: Any, threads: int) -> Launch:
        return SimulatedLaunch(lambda run: None, cost=10 * buffer.nbytes)

    ceilings = {name: replace(ceiling, bind=probe) for name, ceiling in DEVICE.ceilings().items()}
    device = replace(DEVICE, clock=BusyAtFirst, ceilings=lambda: ceilings)
    doubted = list[str]()

    def forget(name: str) -> None:
        nonlocal busy
        doubted.append(name)
        busy = False

    monkeypatch.setattr(survey(device), "forget", forget)
    turn = Rotation(nbytes=600 * 10 * N, wanted=600 * 10 * N)
    performance, bench = measured(cases, honest, device=device, cost=kernel_ns, budget_s=0.3, turn=turn)
    assert doubted
    assert performance.status is Status.PASS, performance.reason
    assert not faults_of(cases, bench)
