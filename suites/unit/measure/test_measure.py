"""The measuring room on simulated time: planted ratios, noise and faults are known exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import COMPUTE, READ, TURN, WRITE, SimulatedClock, SimulatedLaunch, device, probe

from tritmark.harness.errors import UsageError
from tritmark.harness.machine import cpu, memory
from tritmark.harness.measure import buffers
from tritmark.harness.measure.alternate import SHORTEST_NS, Timed, alternate, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, HUGE, MOST_SETS, Arena, HostMemory, Rotation, empty, rotation
from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.statistics import (
    LEAST_SAMPLES,
    binomial_quantile,
    interval,
    median,
    normal_quantile,
    order_interval,
    theil_sen,
)
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, Plateau, TimeLimit
from tritmark.harness.measure.survey import BYTES, COMPUTE_BYTES, Field, Survey, compute_bytes
from tritmark.harness.measure.system_load import SystemLoad, crowded
from tritmark.harness.measure.write_back import WriteBackCeiling
from tritmark.harness.spec import Ceiling, Launch

pytestmark = pytest.mark.timing


def timed(cost: float, clock: SimulatedClock, launches: int = 1) -> Timed:
    return Timed([SimulatedLaunch(cost) for _ in range(launches)], clock)


# Comparing


@pytest.mark.parametrize("planted", [1.0, 1.05, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_alternation_recovers_a_planted_ratio_under_heavy_noise(planted: float, seed: int) -> None:
    clock = SimulatedClock(noise=0.08, seed=seed)
    a, b = timed(20_000, clock), timed(20_000 * planted, clock)
    calibrate(a)
    calibrate(b)
    rng = np.random.default_rng(seed)
    found = alternate(a, b, rng, MinimumSamples(1200, TimeLimit(0)))
    ratio = found.ratio()
    assert ratio.pairs == 1200
    assert abs(ratio.median / planted - 1) < 0.01
    assert abs(ratio.low / planted - 1) < 0.02
    assert abs(ratio.high / planted - 1) < 0.02
    assert ratio.low <= ratio.median <= ratio.high


def test_the_same_noise_fools_blocks() -> None:
    """The simulated noise is heavy: medians of one block each, as most tools take them, miss by more than 5 % most
    of the time."""
    misses = []
    for seed in range(10):
        clock = SimulatedClock(noise=0.08, seed=seed)
        a, b = timed(20_000, clock), timed(20_000, clock)
        medians = [median([side.sample() for _ in range(300)]) for side in (a, b)]
        misses.append(abs(medians[1] / medians[0] - 1))
    assert median(misses) > 0.05


def test_no_sample_is_dropped_and_the_order_within_pairs_varies() -> None:
    taken: list[str] = []

    class Noting(SimulatedClock):
        def __init__(self, who: str) -> None:
            super().__init__()
            self._who = who

        def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
            taken.append(self._who)
            return super().sample(launches, first, calls)

    a, b = Timed([SimulatedLaunch(100)], Noting("a"), calls=3), Timed([SimulatedLaunch(300)], Noting("b"), calls=2)
    found = alternate(a, b, np.random.default_rng(0), MinimumSamples(64, TimeLimit(0)))
    assert found.a_ns == (100.0,) * 64
    assert found.b_ns == (300.0,) * 64
    pairs = ["".join(taken[at : at + 2]) for at in range(0, len(taken), 2)]
    assert len(pairs) == 64
    assert set(pairs) == {"ab", "ba"}
    assert found.stopped == "time"
    assert (a.made, b.made) == (192, 128)


def test_scale_brings_a_probe_to_the_work_of_the_kernel() -> None:
    clock = SimulatedClock()
    found = alternate(timed(1000, clock), timed(500, clock), np.random.default_rng(0), MinimumSamples(10, TimeLimit(0)))
    ratio = found.ratio(scale=1.5)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.75, 0.75, 0.75))


@pytest.mark.parametrize("cost", [1, 40, 999, 30_000, 90_000, 160_000, 340_000])
def test_calibrated_samples_are_short_but_not_too_short(cost: int) -> None:
    side = timed(cost, SimulatedClock())
    calibrate(side)
    assert SHORTEST_NS <= side.calls * cost <= 350_000


def test_a_slow_call_is_a_sample_by_itself() -> None:
    side = timed(5_000_000, SimulatedClock())
    assert calibrate(side) == 5_000_000
    assert side.calls == 1


def test_rotation_cycles_through_every_set_in_order() -> None:
    clock = SimulatedClock()
    side = timed(70_000, clock, launches=5)
    side.calls = 3
    for _ in range(7):
        side.sample()
    assert clock.order == [call % 5 for call in range(21)]


def test_a_warm_sample_is_preceded_by_a_call_that_is_not_timed() -> None:
    launch = SimulatedLaunch(100)
    side = Timed([launch], SimulatedClock(), calls=4, warm=True)
    assert side.sample() == 100
    assert launch.runs == side.made == 5


# Statistics and rules


@given(st.lists(st.floats(-1e6, 1e6), min_size=LEAST_SAMPLES, max_size=60))
def test_intervals_hold_the_median(samples: list[float]) -> None:
    for low, high in (order_interval(samples), interval(samples)):
        assert min(samples) <= low <= high <= max(samples)
        assert low <= median(samples) <= high


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_interval_of_few_samples_is_wider_than_they_are_apart_and_holds_what_it_says(count: int) -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(600):
        samples = rng.normal(0, 1, count)
        low, high = interval(samples)
        assert count == 5 or high - low > samples.max() - samples.min()
        hits += low <= 0 <= high
    assert hits / 600 > 0.95 - 4 * sqrt(0.95 * 0.05 / 600)


def test_samples_that_hang_together_count_for_fewer() -> None:
    """Ten of each: as many independent ones would give an interval a third as wide, which misses the truth in most
    cases."""
    rng = np.random.default_rng(5)
    tied = [np.repeat(rng.normal(0, 1, 40), 10) for _ in range(200)]
    hits = sum(low <= 0 <= high for low, high in map(interval, tied))
    naive = sum(low <= 0 <= high for low, high in (order_interval(each.tolist()) for each in tied))
    assert hits > 0.85 * len(tied) > naive


@pytest.mark.parametrize("find", [order_interval, interval])
def test_intervals_cover_the_true_median_as_often_as_they_say(
    find: Callable[[list[float]], tuple[float, float]],
) -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        samples = rng.standard_cauchy(41)
        low, high = find(samples.tolist())
        hits += low <= 0 <= high
    # Four standard deviations of a binomial at 95 %; an interval half as wide covers about 67 %.
    assert hits / 400 > 0.95 - 4 * sqrt(0.95 * 0.05 / 400)


POINTS = st.dictionaries(st.integers(0, 80), st.integers(-30, 30), min_size=2, max_size=60)


@given(POINTS)
def test_slopes_and_their_intervals_are_those_of_scipy(points: dict[int, int]) -> None:
    from scipy.stats import theilslopes

    places, heights = list(points), list(points.values())
    wanted = theilslopes(heights, places, 0.95)
    assert theil_sen(heights, places) == pytest.approx((wanted[0], wanted[2], wanted[3]), rel=1e-12, nan_ok=True)


@given(st.floats(0.0001, 0.9999), st.integers(1, 4000))
def test_quantiles_are_those_of_scipy(share: float, count: int) -> None:
    from scipy.stats import binom, norm

    wanted = int(binom.ppf(share, count, 0.5))
    # Where a sum equals the share except for its last digits, either neighbour is correct.
    near = {
        wanted + step
        for step in (-1, 1)
        if binom.cdf(min(wanted, wanted + step), count, 0.5) == pytest.approx(share, rel=1e-10)
    }
    assert binomial_quantile(share, count) in {wanted, *near}
    assert normal_quantile(share) == pytest.approx(norm.ppf(share), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("count", range(2, LEAST_SAMPLES))
def test_the_interval_of_few_samples_is_student_s(count: int) -> None:
    from scipy.stats import t

    samples = np.linspace(1, 2, count)
    around = t.ppf(0.975, count - 1) * samples.std(ddof=1) / count**0.5
    assert interval(samples) == pytest.approx((1.5 - around, 1.5 + around), rel=1e-9)


def test_order_interval_of_ten_samples_is_the_textbook_one() -> None:
    assert order_interval([float(n) for n in range(1, 11)]) == (2.0, 9.0)


def feed(rule: Any, samples: Sequence[float]) -> int | None:
    """After how many samples the rule is done."""
    for count, sample in enumerate(samples, 1):
        rule.add(sample)
        if rule.done():
            return count
    return None


def test_interval_stops_once_the_median_is_known_well_enough() -> None:
    rng = np.random.default_rng(0)
    samples = (log(100) + rng.normal(0, 0.01, 5000)).tolist()
    needed = feed(rule := Interval(0.004), samples)
    assert rule.reason == "interval"
    # The median's standard error is 1.25 sigma / sqrt(n): 4 of them in 0.004 need about 150.
    assert needed is not None
    assert 60 < needed < 400
    low, high = order_interval(samples[:needed])
    assert high - low <= 0.004
    assert feed(Interval(1e-6), samples) is None


def test_plateau_stops_where_the_median_no_longer_moves() -> None:
    assert feed(rule := Plateau(0.001), [0.0, 1.0, 0.5] * 200) is not None
    assert rule.reason == "plateau"
    assert feed(Plateau(0.001), np.linspace(0, 1, 2000).tolist()) is None


def test_time_limit_and_least_number_of_samples() -> None:
    now = [0]
    rule = First(MinimumSamples(4, Interval(0.5)), TimeLimit(1e-6, lambda: now[0]))
    assert feed(rule, [0.0] * 3) is None
    now[0] = 1000
    assert feed(rule, [0.0]) == 1
    assert rule.reason == "time"
    assert feed(First(MinimumSamples(8, Interval(0.5)), TimeLimit(1, lambda: 0)), [0.0] * 20) == 8


def test_the_first_rule_that_is_done_is_the_reason() -> None:
    rule = First(Interval(1e-9), Plateau(0.1), TimeLimit(60))
    assert feed(rule, np.random.default_rng(0).normal(0, 0.01, 500).tolist()) is not None
    assert rule.reason == "plateau"


# Clocks


def test_python_clock_cycles_and_counts() -> None:
    order: list[int] = []
    launches = [SimulatedLaunch(0, partial(order.append, index)) for index in range(3)]
    assert PythonClock().sample(launches, 2, 7) > 0
    assert order == [2, 0, 1, 2, 0, 1, 2]
    order.clear()
    PythonClock().sample(launches, 1, 2)
    assert order == [1, 2]


def test_the_native_clock_is_taken_only_if_every_launch_has_a_native_call() -> None:
    machine = device()
    assert clock_for(machine, [SimulatedLaunch(1), SimulatedLaunch(1)]).name == "simulated"
    assert clock_for(machine, [SimulatedLaunch(1), SimulatedLaunch(1, pointer=None)]).name == "Python loop"


# Buffers


@pytest.mark.parametrize(
    ("shape", "dtype", "offset"),
    [((7,), "int8", 0), ((3, 5), "float32", 1), ((1 << 20,), "float64", 1), ((), "int32", 0)],
)
def test_buffers_are_aligned_zero_and_writable(shape: tuple[int, ...], dtype: str, offset: int) -> None:
    array = empty(shape, dtype, offset)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.ctypes.data % ALIGNMENT == offset * array.itemsize
    assert not array.any()
    array[...] = 1
    assert array.all()


def test_large_buffers_begin_on_huge_pages() -> None:
    assert empty((4 * HUGE,), np.uint8).ctypes.data % HUGE == 0


def test_arrays_of_an_arena_do_not_overlap_and_it_ends() -> None:
    arena = Arena(1000)
    arrays = [arena.take((25,), np.dtype("float32"), offset) for offset in (0, 1, 0)]
    for value, array in enumerate(arrays):
        array[...] = value
    assert [set(array.tolist()) for array in arrays] == [{0.0}, {1.0}, {2.0}]
    with pytest.raises(ValueError, match="bytes requested"):
        arena.take((1000,), np.dtype("uint8"))


def test_rotation_grows_with_the_last_level_cache_and_admits_a_short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "last_level", lambda: 96 << 20)
    monkeypatch.setattr(memory, "available", lambda: 64 << 30)
    assert rotation() == Rotation(nbytes=384 << 20, wanted=384 << 20)
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    assert rotation() == Rotation(nbytes=128 << 20, wanted=384 << 20)
    monkeypatch.setattr(cpu, "last_level", lambda: None)
    assert rotation().wanted == buffers.rotation().nbytes == 128 << 20


def test_sets_fill_the_rotation() -> None:
    turn = Rotation(nbytes=1 << 20, wanted=1 << 20)
    assert [turn.sets_for(size) for size in (1 << 30, 1 << 20, (1 << 20) - 1, 1 << 18)] == [1, 1, 2, 4]
    assert turn.sets_for((1 << 20) // MOST_SETS) == MOST_SETS
    assert turn.sets_for((1 << 20) // MOST_SETS - 1) is None


# Other processes


def test_others_are_counted_without_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(100.0, 10.0, 50.0), (102.0, 11.0, 54.0), (100.0, 10.0, 50.0), (100.01, 10.0, 50.02)])
    monkeypatch.setattr("tritmark.harness.measure.system_load._now", lambda: next(readings))
    assert SystemLoad().cores() == pytest.approx((4 - 1) / 2)
    assert SystemLoad().cores() is None  # 10 ms are one tick of the kernel's


@pytest.mark.parametrize(
    ("taken", "threads", "cores", "answer"),
    [
        (None, 2, 2, False),
        (0.05, 2, 2, False),
        (0.2, 2, 2, True),
        (1.0, 1, 2, False),
        (1.2, 1, 2, True),
        (9.0, 8, 4, True),
    ],
)
def test_a_crowd_is_what_takes_more_than_the_spare_cores(
    taken: float | None, threads: int, cores: int, answer: bool
) -> None:
    assert crowded(taken, threads, cores, 0.05) is answer


@pytest.mark.parametrize("share", [0.25, 4])
def test_the_fastest_probe_is_the_one_with_the_highest_rate_whatever_it_does_in_a_call(share: float) -> None:
    def ceiling(rate: float, share: float) -> Ceiling:
        def work(nbytes: int) -> int:
            return int(nbytes * 1024 * share)

        return Ceiling(name="compute", unit="operations/s", summary="", bind=partial(probe, rate, work), work=work)

    slower, faster = ceiling(COMPUTE, 1), ceiling(1.2 * COMPUTE, share)
    found = Survey(replace(device(), ceilings=lambda: {"slower": slower, "faster": faster}))
    field = Field(0, TURN)
    roof = found.roof("compute", field, 1 << 16, threads=1, cold=False)
    assert roof.ceiling is faster
    assert roof.rate == pytest.approx(1.2 * COMPUTE, rel=0.01)
    assert found.most("compute", field, 1 << 16, threads=1, cold=False) == pytest.approx(1.2 * COMPUTE, rel=0.01)


def test_what_many_threads_compute_takes_longer_than_to_wake_them() -> None:
    """As with AMX: a sixteenth of what one computes in some microseconds takes less than waking the others."""
    threads, waking_ns, each_ns = 16, 1000, 10_000

    def bind(buffer: Any, threads: int) -> Launch:
        return SimulatedLaunch(waking_ns * (threads > 1) + each_ns * buffer.nbytes / COMPUTE_BYTES / threads)

    dots = Ceiling(name="compute", unit="operations/s", summary="", bind=bind, work=int)
    facts = measure_ceilings(replace(device(cores=threads), ceilings=lambda: {"compute": dots}))
    rates = {fact.threads: fact.rate for fact in facts}
    assert rates[1] == pytest.approx(COMPUTE_BYTES / each_ns * 1e9, rel=0.01)
    assert rates[threads] > 0.9 * threads * rates[1]
    assert compute_bytes(device(cores=2), 16) == 2 * COMPUTE_BYTES


def test_the_survey_takes_the_fastest_probe_of_a_name_and_keeps_it() -> None:
    found, field = Survey(device(cores=2)), Field(0, TURN)
    roof = found.roof("read", field, 1 << 16, threads=1, cold=True)
    assert roof.rate == pytest.approx(READ, rel=1e-3)
    assert roof.ceiling is found.device.ceilings()["read ahead"]
    assert found.roof("read", field, (1 << 16) + 64, threads=1, cold=True) is roof
    assert found.roof("read", field, 1 << 16, threads=2, cold=True).rate == pytest.approx(2 * READ, rel=1e-2)
    with pytest.raises(UsageError, match="no probe for 'flight'; legal: read, write, compute"):
        found.roof("flight", field, 64, threads=1, cold=False)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_where_launches_may_overlap_the_start_of_a_probe_is_no_part_of_the_floor(own: bool, cold: bool) -> None:
    """A kernel whose launch begins while the one before it runs is quicker than a probe of as few bytes that waits."""
    nbytes, start_ns = 1 << 16, 2 * (1 << 16) / READ * 1e9

    def starting(buffer: Any, threads: int) -> Launch:
        return SimulatedLaunch(start_ns + buffer.nbytes / READ * 1e9)

    class Own(HostMemory):
        cache = 1 << 25

    probes = {"read": Ceiling(name="read", unit=BYTES, summary="", bind=starting, work=int)}
    found = Survey(replace(device(), ceilings=lambda: probes, memory=Own if own else None))
    field = Field(0, replace(TURN, nbytes=1 << 24), found.memory)
    most = found.most("read", field, nbytes, threads=1, cold=cold)
    assert most == pytest.approx(READ if own else READ / 3, rel=0.02)
    assert found.roof("read", field, nbytes, threads=1, cold=cold).rate == pytest.approx(READ / 3, rel=0.02)


class Cached(SimulatedLaunch):
    """Writes at `rate` until it has written more than twice a cache without a pause by others, then at `later`."""

    written = 0
    who = ""

    def __init__(self, who: str, nbytes: int, rate: float, later: float) -> None:
        super().__init__(nbytes / rate * 1e9, self._write)
        self.name, self.nbytes, self.at, self.then = who, nbytes, nbytes / rate * 1e9, nbytes / later * 1e9

    def _write(self) -> None:
        if Cached.who != self.name:
            Cached.who, Cached.written = self.name, 0
        Cached.written += self.nbytes
        self.cost = self.then if Cached.written > 2 << 23 else self.at


@pytest.mark.parametrize(("later", "winner"), [(0.8, "write around"), (1.3, "write")])
def test_a_probe_that_leaves_work_behind_counts_by_its_rate_once_it_pays_for_it(
    monkeypatch: pytest.MonkeyPatch, later: float, winner: str
) -> None:
    def lingering(buffer: Any, threads: int) -> Launch:
        return Cached("write", buffer.nbytes, 1.5 * WRITE, later * WRITE)

    def around(buffer: Any, threads: int) -> Launch:
        return Cached("around", buffer.nbytes, WRITE, WRITE)

    probes: dict[str, Ceiling] = {
        "write": WriteBackCeiling(name="write", unit=BYTES, summary="", bind=lingering, work=int),
        "write around": Ceiling(name="write", unit=BYTES, summary="", bind=around, work=int),
    }
    found, field = Survey(replace(device(), ceilings=lambda: probes)), Field(0, TURN)
    monkeypatch.setattr(cpu, "last_level", lambda: 1 << 23)
    assert found.roof("write", field, 1 << 16, threads=1, cold=False).ceiling is probes["write"]
    assert found.roof("write", field, 1 << 16, threads=1, cold=True).ceiling is probes[winner]
    # of a sample that begins in the cache
    assert found.most("write", field, 1 << 16, threads=1, cold=True) > 1.4 * WRITE


def test_cold_pieces_do_not_overlap() -> None:
    field = Field(0, TURN)
    pieces = list(field.pieces(100_000, cold=True))
    starts = [piece.ctypes.data for piece in pieces]
    assert len(pieces) == TURN.nbytes // 100_032
    assert min(np.diff(starts)) >= 100_000
    assert len(list(field.pieces(100_000, cold=False))) == 1


def test_ceilings_of_a_device_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.measure.survey.rotation", lambda memory: replace(TURN, nbytes=16 << 20))
    found = {(facts.name, facts.level, facts.threads): facts for facts in measure_ceilings(device(cores=2))}
    assert set(found) == {
        (name, level, threads)
        for name, level in (("read", "memory"), ("write", "memory"), ("compute", "registers"))
        for threads in (1, 2)
    }  # fmt: skip
    assert found["read", "memory", 1].rate == pytest.approx(READ, rel=1e-2)
    assert found["write", "memory", 2].rate == pytest.approx(2 * WRITE, rel=1e-2)
    assert found["compute", "registers", 2].rate == pytest.approx(2 * COMPUTE, rel=1e-2)
    assert found["compute", "registers", 2].unit == "operations/s"


def test_least_samples_are_those_of_which_an_interval_can_be_had() -> None:
    """Six samples all on one side of the median are rarer than 5 %, five are not."""
    assert 2 * 0.5**LEAST_SAMPLES < 0.05 < 2 * 0.5 ** (LEAST_SAMPLES - 1)


def test_large_arrays_go_back_to_the_system_one_by_one() -> None:
    """Of its own accord malloc keeps what is free under something that is not."""
    program = """
import sys, numpy as np
from tritmark.harness.measure import heap
if sys.argv[1] == "back": heap.give_back_large()
np.ones(3 << 20).sum()  # what malloc takes as a sign that more of the kind will come
many, pins = [], []
for _ in range(8):
    many.append(np.ones(1 << 20))
    pins.append(bytearray(100_000))
held = heap._pages()[1]
many.clear()
print(held - heap._pages()[1])
"""
    back, kept = (
        int(subprocess.run([sys.executable, "-c", program, how], check=True, capture_output=True).stdout)
        for how in ("back", "kept")
    )
    assert back > 7 * (8 << 20) > kept
