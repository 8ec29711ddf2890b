"""The verdict on time, on a simulated machine: percent of ceilings, and figures that are not believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from mmap import mmap
from typing import Any

import numpy as np
import pytest
import simulated_machine
from simulated_machine import TURN, WRITE, SimulatedClock, SimulatedLaunch, device

from tritmark.harness.errors import UsageError
from tritmark.harness.measure import buffers
from tritmark.harness.measure import survey as survey_module
from tritmark.harness.measure.buffers import ALIGNMENT, Rotation
from tritmark.harness.measure.statistics import (
    ENOUGH_SAMPLES,
    median,
)
from tritmark.harness.measure.survey import survey
from tritmark.harness.record import Performance, Status
from tritmark.harness.spec import KernelKey, Launch, Op, Tensor, Tier, ToleranceKind, Traffic, Variant
from tritmark.harness.validate.audit import Auditor
from tritmark.harness.validate.ceiling import TELLING
from tritmark.harness.validate.performance import Bench

pytestmark = pytest.mark.timing


def double_reference(inputs: Mapping[str, Any], axes: Mapping[str, int], key: KernelKey) -> dict[str, Any]:
    return {"y": inputs["x"] * 2}


KEY = KernelKey("simulated", "double", "none", "int32")
DOUBLE = Op(
    name="double",
    summary="y = 2 x",
    source="this test",
    axes=("n",),
    inputs=(Tensor("x", ("n",), "int32", ""), Tensor("scalar", (), "int32", "")),
    outputs=(Tensor("y", ("n",), "int32", ""),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=("uniform",),
    generate=lambda axes, family, rng: {"x": rng.integers(0, 99, axes["n"], dtype=np.int32), "scalar": 3},
    outputs_like=lambda axes, key: {"y": ((axes["n"],), "int32")},
    reference=double_reference,
    traffic=lambda axes, key: Traffic(read=4 * axes["n"], written=4 * axes["n"], operations=axes["n"]),
)
N = 25_000
FLOOR_NS = 4 * N / WRITE * 1e9
"""Writes limit: they take twice as long as reads, and longer than computing."""


class Candidate:
    """Makes a Variant that takes `slower` times the physical floor, and records its bindings."""

    def __init__(self, slower: float, *, works: bool = True, honest: bool = True, pointer: int | None = 1) -> None:
        self.bound: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = []
        self._cost = slower * FLOOR_NS
        self._works, self._honest, self._pointer = works, honest, pointer

    def _bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], axes: Mapping[str, int], threads: int
    ) -> Launch:
        self.bound.append((inputs, outputs, threads))
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        work = partial(np.multiply, inputs["x"], 2, out=outputs["y"]) if self._works else nothing
        return SimulatedLaunch(self._cost, work, honest=self._honest, pointer=self._pointer, threads=threads)

    def variant(self) -> Variant:
        return Variant(key=KEY, name="candidate", tier=Tier.BASELINE, summary="", bind=self._bind)


def bench(clock: SimulatedClock | None = None, **more: Any) -> Bench:
    axes = {"n": N}
    inputs = DOUBLE.generate(axes, "uniform", np.random.default_rng(0))
    settings = {"turn": TURN, "budget_s": 0.05, **more}
    return Bench(op=DOUBLE, key=KEY, inputs=inputs, axes=axes, device=device(clock), **settings)


def test_a_kernel_is_shown_as_part_of_the_ceiling_that_limits_it() -> None:
    found = bench().measure(Candidate(1.25).variant(), 1)
    assert found.status is Status.PASS
    assert (found.read, found.written, found.operations) == (4 * N, 4 * N, N)
    for footing in (found.cold, found.hot):
        assert footing is not None
        assert footing.against.ceiling == "write"
        assert footing.against.rate == pytest.approx(WRITE, rel=1e-3)
        assert footing.against.work == 4 * N
        assert footing.against.fraction.median == pytest.approx(0.8, rel=1e-3)
        assert footing.timing.median_ns == pytest.approx(1.25 * FLOOR_NS, rel=1e-3)
        assert footing.timing.stopped == "interval"
        assert len(footing.timing.samples_ns) == footing.against.fraction.pairs >= ENOUGH_SAMPLES
        assert footing.footprint == 8 * N


def test_cold_cycles_through_sets_of_its_own_memory_and_hot_through_one() -> None:
    candidate = Candidate(2)
    found = bench().measure(candidate.variant(), 3)
    assert found.cold is not None
    assert found.hot is not None
    sets = len(candidate.bound)
    assert found.cold.timing.buffers == sets == TURN.sets_for(8 * N + 2 * ALIGNMENT)
    assert sets > 1
    assert found.hot.timing.buffers == 1
    # Memory of both sides is touched before a set is used again.
    assert 2 * TURN.nbytes - 16 * N < found.cold.rotation < 2 * TURN.nbytes + 16 * N
    assert found.hot.rotation == 8 * N + 2 * ALIGNMENT
    addresses = {array.ctypes.data for inputs, outputs, _ in candidate.bound for array in (inputs["x"], outputs["y"])}
    assert len(addresses) == 2 * sets
    first = candidate.bound[0][0]["x"]
    assert all(np.array_equal(inputs["x"], first) for inputs, _, _ in candidate.bound)
    assert {inputs["scalar"] for inputs, _, _ in candidate.bound} == {3}
    assert {threads for _, _, threads in candidate.bound} == {3}
    assert all(np.array_equal(outputs["y"], first * 2) for _, outputs, _ in candidate.bound)


def test_copies_of_what_packs_its_inputs_are_as_many_as_fill_the_rotation() -> None:
    candidate = Candidate(2)
    copies: list[mmap] = []

    def bind(*arguments: Any) -> Launch:
        copies.append(mmap(-1, TURN.nbytes // 2))
        np.frombuffer(copies[-1], np.uint8)[:] = 1
        return candidate.variant().bind(*arguments)

    found = bench().measure(replace(candidate.variant(), bind=bind, packs=True), 1)
    assert found.status is Status.PASS
    assert found.cold is not None
    sets = TURN.sets_for(8 * N + 2 * ALIGNMENT)
    assert sets is not None
    assert found.cold.timing.buffers == len(copies) == 2 < sets
    assert found.cold.rotation > 2 * TURN.nbytes


def test_variants_of_a_key_share_the_memory() -> None:
    shared = bench()
    first, second = Candidate(2), Candidate(3)
    shared.measure(first.variant(), 1)
    shared.measure(second.variant(), 1)
    assert [inputs["x"].ctypes.data for inputs, _, _ in first.bound] == [
        inputs["x"].ctypes.data for inputs, _, _ in second.bound
    ]


@pytest.mark.parametrize(("layout", "past"), [("aligned", 0), ("unaligned", 4)])
def test_arrays_lie_as_the_layout_says(layout: str, past: int) -> None:
    candidate = Candidate(2)
    bench(layout=layout).measure(candidate.variant(), 1)
    for inputs, outputs, _ in candidate.bound:
        assert inputs["x"].ctypes.data % ALIGNMENT == outputs["y"].ctypes.data % ALIGNMENT == past


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(UsageError, match="layout"):
        bench(layout="sideways").measure(Candidate(2).variant(), 1)


def test_a_kernel_that_does_nothing_fails_by_the_physical_floor() -> None:
    found = bench().measure(Candidate(0.01, works=False).variant(), 1)
    assert found.status is Status.FAIL
    assert "cold" in found.reason
    assert "hot" in found.reason
    assert found.reason.count("physical floor") == 2
    assert "did not write y" in found.reason


def test_the_floor_leaves_room_for_a_kernel_as_good_as_the_probe() -> None:
    assert bench().measure(Candidate(1 - TELLING / 2).variant(), 1).status is Status.PASS
    assert bench().measure(Candidate(1 - TELLING * 1.5).variant(), 1).status is Status.FAIL


def test_a_probe_that_is_held_up_fails_no_kernel() -> None:
    """With other processes on the cores, each call of several threads can wait 8 ms for the last thread, while the
    kernel needs only one thread."""

    class Stalling(SimulatedClock):
        def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
            taken = super().sample(launches, first, calls)
            return taken + 8_000_000 * calls * any(
                launch.threads > 1 for launch in launches if isinstance(launch, SimulatedLaunch)
            )

    class OneThread(Candidate):
        def _bind(
            self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], axes: Mapping[str, int], threads: int
        ) -> Launch:
            return super()._bind(inputs, outputs, axes, 1)

    found = bench(Stalling()).measure(OneThread(0.6).variant(), 2)
    assert found.cold is not None
    assert found.cold.against.fraction.median == pytest.approx(1 / 0.6, rel=0.05)
    assert found.status is Status.PASS
    assert found.cold.against.lost
    assert "the write probe lost, at 1" in found.reason
    assert not found.doubted


@pytest.mark.parametrize(("looked_at", "status"), [(1, Status.FAIL), (TURN.nbytes, Status.PASS)])
def test_a_probe_that_takes_long_to_start_fails_no_kernel(
    monkeypatch: pytest.MonkeyPatch, looked_at: int, status: Status
) -> None:
    """Over few bytes, its start is most of its time. A kernel with a shorter start is faster and does not do less."""

    def starting(rate: float, work: Callable[[int], int], buffer: Any, threads: int) -> Launch:
        return SimulatedLaunch(FLOOR_NS / 2 + work(buffer.nbytes) / rate * 1e9 / threads, threads=threads)

    monkeypatch.setattr(simulated_machine, "probe", starting)
    monkeypatch.setattr(survey_module, "START_BYTES", looked_at)
    found = bench().measure(Candidate(1.01).variant(), 1)
    assert found.status is status
    assert found.doubted == (status is Status.FAIL)
    assert found.hot is not None
    assert found.hot.against.lost


def test_a_roof_that_was_found_on_a_busy_machine_is_looked_for_again() -> None:
    class BusyAtFirst(SimulatedClock):
        busy = True

        def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
            return super().sample(launches, first, calls) * (10 if self.busy else 1)

    clock = BusyAtFirst()
    shared = bench(clock)
    assert shared.measure(Candidate(2).variant(), 1).status is Status.PASS
    known = survey(shared._device)
    assert all(roof.fastest < WRITE / 5 for key, roof in known._roofs.items() if key[0] == "write")
    clock.busy = False
    nothing = shared.measure(Candidate(0.3, works=False).variant(), 1)
    assert nothing.status is Status.FAIL
    assert all(roof.fastest > WRITE / 5 for key, roof in known._roofs.items() if key[0] == "write")


def test_a_probe_that_is_loaded_all_the_time_flatters_no_kernel() -> None:
    """The survey is that of another process, as in a run."""

    class Loaded(SimulatedClock):
        loaded = False

        def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
            slow = (
                self.loaded and launches[0].cost < FLOOR_NS * 3 if isinstance(launches[0], SimulatedLaunch) else False
            )
            return super().sample(launches, first, calls) * (3 if slow else 1)

    clock = Loaded()
    shared = bench(clock)
    assert shared.measure(Candidate(4).variant(), 1).status is Status.PASS
    clock.loaded = True
    found = shared.measure(Candidate(4).variant(), 1)
    assert found.status is Status.PASS
    for footing in (found.cold, found.hot):
        assert footing is not None
        assert footing.against.fraction.median == pytest.approx(0.75, rel=1e-2)  # three times its rate
        assert footing.against.lost
    assert "something loads the machine while it runs" in found.reason


def test_calls_that_never_ran_fail() -> None:
    found = bench().measure(Candidate(2, honest=False).variant(), 1)
    assert found.status is Status.FAIL
    assert "ran 0 times" in found.reason


def test_results_that_differ_from_call_to_call_fail() -> None:
    class Fickle(Candidate):
        def _bind(
            self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], axes: Mapping[str, int], threads: int
        ) -> Launch:
            self.bound.append((inputs, outputs, threads))
            return SimulatedLaunch(self._cost, partial(outputs["y"].fill, len(self.bound)))

    found = bench().measure(Fickle(2).variant(), 1)
    assert found.status is Status.FAIL
    assert "different y" in found.reason


def test_a_noisy_figure_is_a_figure_with_a_wide_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budgets of survey and samples are simulated time, so the number of samples depends on no other clock. In such
    noise the survey may take reading, at twice the rate, for the limit. 1 interval of 20 misses the true value; more
    than 3 do in one of 60 runs."""
    truth = {"write": 0.8, "read": 0.4}
    held = []
    for seed in range(20):
        clock = SimulatedClock(noise=3.0, seed=seed)
        monkeypatch.setattr(survey_module, "perf_counter_ns", lambda clock=clock: clock.passed_ns)
        monkeypatch.setattr(Auditor, "clock", lambda self, clock=clock: clock.passed_ns)
        found = bench(clock).measure(Candidate(1.25).variant(), 1)
        assert found.status is Status.PASS
        assert found.hot is not None
        fraction = found.hot.against.fraction
        assert fraction.high / fraction.low > 1 + TELLING
        held.append(fraction.low < truth[found.hot.against.ceiling] < fraction.high)
    assert sum(held) >= 17


def test_of_few_pairs_the_interval_is_wide_and_their_number_is_said() -> None:
    found = bench(SimulatedClock(noise=0.1), budget_s=0.0).measure(Candidate(1.25).variant(), 1)
    assert found.status is Status.PASS
    assert "pairs of samples is only 2" in found.reason
    assert found.hot is not None
    timing = found.hot.timing
    assert len(timing.samples_ns) == 2
    assert timing.low_ns < min(timing.samples_ns) < max(timing.samples_ns) < timing.high_ns


def test_kept_samples_have_four_digits_and_figures_are_theirs() -> None:
    found = bench(SimulatedClock(noise=0.1)).measure(Candidate(1.25).variant(), 1)
    assert found.hot is not None
    timing, against = found.hot.timing, found.hot.against
    assert all(float(f"{sample:.4g}") == sample for sample in (*timing.samples_ns, *against.probe_ns))
    assert timing.median_ns == median(timing.samples_ns)
    assert len(timing.samples_ns) <= 400


def test_memory_that_is_too_short_is_said() -> None:
    found = bench(turn=Rotation(nbytes=1 << 20, wanted=1 << 24)).measure(Candidate(2).variant(), 1)
    assert found.status is Status.PASS
    assert f"{1 << 20} bytes of the {1 << 24} wanted" in found.reason


def test_what_is_too_small_to_get_cold_has_no_cold_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MOST_SETS", 5)
    found = bench().measure(Candidate(2).variant(), 1)
    assert found.status is Status.PASS
    assert found.cold is None
    assert found.hot is not None
    assert "no cold figure" in found.reason


def test_times_that_hold_a_call_through_python_are_said_to() -> None:
    assert bench().measure(Candidate(2).variant(), 1).limits == ()
    (told,) = bench().measure(Candidate(2, pointer=None).variant(), 1).limits
    assert "through Python" in told


def test_call_overhead_is_a_figure_of_its_own() -> None:
    def overhead(found: Performance) -> float | None:
        return found.call_overhead_ns

    assert overhead(bench().measure(Candidate(2).variant(), 1)) is not None
    assert overhead(bench().measure(Candidate(2, pointer=None).variant(), 1)) is None
    assert overhead(bench().measure(Candidate(40).variant(), 1)) is None  # 400 us hide it
