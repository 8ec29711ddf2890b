"""Figures that follow from those of a Record: each by hand, missing with a reason, and never of a refuted time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import ceilings, one_run, record_of

from tritmark.harness import derived
from tritmark.harness.derived import (
    HIT_RATE,
    CacheEfficiency,
    SimdEfficiency,
    best_threads,
    cache_efficiency,
    simd_efficiency,
)
from tritmark.harness.record import CeilingFacts, Code, Function, Ratio, Record, Run, Scaled, Status

CACHES = {"L1d": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
ISAS = {
    "scalar": frozenset[str](),
    "sse41": frozenset({"sse4.1"}),
    "avx2": frozenset({"avx2", "f16c"}),
    "avx512": frozenset({"avx2", "f16c", "avx512f", "avx512vl"}),
    "amx": frozenset({"avx2", "f16c", "avx512f", "amx-tile"}),
    "neon": frozenset({"asimd"}),
    "novel": frozenset({"rvv"}),
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instruction sets of every architecture."""
    monkeypatch.setattr(derived, "ladder", lambda: ISAS)


def run_of(variant: str, median_ns: float, kind: tuple[str, str, str] = ("i2s_quantize", "none", "int8")) -> Run:
    """A Run with that hot time, and an interval of 2 % around it."""
    axes = {"n": 1 << 16} if kind[0] != "ternary_matmul" else {"M": 1, "N": 256, "K": 512}
    run = one_run(random.Random(1), (*kind, variant), axes=axes, measured=True)
    return timed(run, median_ns, median_ns * 0.98, median_ns * 1.02)


def timed(run: Run, median_ns: float, low_ns: float, high_ns: float, **more: Any) -> Run:
    hot = run.performance.hot
    assert hot is not None
    timing = hot.timing.model_copy(update={"median_ns": median_ns, "low_ns": low_ns, "high_ns": high_ns})
    hot = hot.model_copy(update={"timing": timing, **more})
    return run.model_copy(update={"performance": run.performance.model_copy(update={"hot": hot})})


def refuted(run: Run, how: str) -> Run:
    part, change = {
        "doubted": ("performance", {"doubted": True}),
        "incorrect": ("accuracy", {"status": Status.FAIL, "reason": "wrong"}),
        "untimed": ("performance", {"hot": None}),
    }[how]
    return run.model_copy(update={part: getattr(run, part).model_copy(update=change)})


def record(*runs: Run, caches: dict[str, int] | None = None, known: tuple[CeilingFacts, ...] | None = None) -> Record:
    made = record_of(list(runs))
    machine = made.machine.model_copy(
        update={
            "caches": CACHES if caches is None else caches,
            "ceilings": ceilings("cpu") if known is None else known,
        }
    )
    return made.model_copy(update={"machine": machine})


@pytest.mark.parametrize(
    ("variant", "kind", "lanes"),
    [
        ("sse41", ("i2s_quantize", "none", "int8"), 4),  # float32 values
        ("avx2", ("i2s_quantize", "none", "int8"), 8),
        ("avx512", ("i2s_quantize", "none", "int8"), 16),
        ("avx512", ("i2s_dequantize", "none", "float32"), 16),
        ("neon", ("i2s_dequantize", "none", "float32"), 4),
        ("avx2", ("ternary_matmul", "tile64", "float32"), 32),  # int8 weights
        ("avx512", ("ternary_matmul", "tile64", "bfloat16"), 64),
    ],
)
def test_simd_efficiency(variant: str, kind: tuple[str, str, str], lanes: int) -> None:
    scalar, own = run_of("scalar", 800.0, kind), run_of(variant, 100.0, kind)
    found = simd_efficiency(record(run_of("sse41", 400.0, kind), scalar, own), own)
    assert isinstance(found, SimdEfficiency)
    assert (found.speedup, found.lanes, found.efficiency) == (8.0, lanes, 8.0 / lanes)
    assert found.low == pytest.approx(8 * 0.98 / 1.02)
    assert found.high == pytest.approx(8 * 1.02 / 0.98)


def moved(run: Run, **changed: Any) -> Run:
    return run.model_copy(update={"workload": run.workload.model_copy(update=changed)})


OWN, SCALAR = run_of("avx2", 100.0), run_of("scalar", 800.0)


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ((OWN,), "no scalar variant on this workload"),
        ((OWN, run_of("sse41", 200.0)), "no scalar variant on this workload"),
        ((OWN, SCALAR.model_copy(update={"threads": 1})), "no scalar variant on this workload"),
        ((OWN, SCALAR.model_copy(update={"dtype": "float32"})), "no scalar variant on this workload"),
        ((OWN, SCALAR.model_copy(update={"format": "tile64"})), "no scalar variant on this workload"),
        ((OWN, moved(SCALAR, id="another")), "no scalar variant on this workload"),
        ((OWN, SCALAR.model_copy(update={"peer": True})), "no scalar variant on this workload"),
        ((OWN, refuted(SCALAR, "doubted")), "the scalar variant: a verdict refutes its time"),
        ((OWN, refuted(SCALAR, "incorrect")), "the scalar variant: a verdict refutes its time"),
        ((OWN, refuted(SCALAR, "untimed")), "the scalar variant: no hot time"),
        ((OWN, timed(SCALAR, 800.0, 300.0, 1300.0)), "the scalar variant: its hot time is too noisy"),
        ((refuted(OWN, "doubted"), SCALAR), "a verdict refutes its time"),
        ((refuted(OWN, "untimed"), SCALAR), "no hot time"),
        ((timed(OWN, 100.0, 40.0, 160.0), SCALAR), "its hot time is too noisy"),
        ((SCALAR,), "plain C has no vectors"),
        ((run_of("amx", 10.0), SCALAR), "the instruction set has tiles"),
        ((run_of("novel", 10.0), SCALAR), "unknown vectors"),
        ((run_of("unheard", 10.0), SCALAR), "no instruction set of this installation"),
        ((OWN.model_copy(update={"receipt": None}), SCALAR), "no instruction set of this installation"),
        ((OWN.model_copy(update={"device": "cuda"}), SCALAR), "not on the host"),
        ((OWN.model_copy(update={"op": "unheard"}), SCALAR), "the op unheard is not installed"),
        ((moved(OWN, axes={}), SCALAR), "the sizes of the op's tensors are unknown"),
    ],
)
def test_simd_efficiency_is_missing_with_a_reason(runs: tuple[Run, ...], reason: str) -> None:
    found = simd_efficiency(record(*runs), runs[0])
    assert isinstance(found, str)
    assert found.startswith(reason)


def read_rate(level: str, threads: int) -> float:
    (found,) = (
        each.rate for each in ceilings("cpu") if (each.name, each.level, each.threads) == ("read", level, threads)
    )
    return found


@pytest.mark.parametrize(
    ("footprint", "threads", "level"),
    [
        (64 << 10, 2, "L1"),  # each thread has its own
        ((64 << 10) + 1, 2, "L2"),
        ((32 << 10) + 1, 1, "L2"),
        (2 << 20, 2, "L2"),
        ((2 << 20) + 1, 2, "L3"),
        (16 << 20, 1, "L3"),
    ],
)
def test_cache_efficiency_is_a_share_of_the_level_that_holds_the_arrays(
    footprint: int, threads: int, level: str
) -> None:
    run = OWN.model_copy(update={"threads": threads})
    nbytes = run.performance.read + run.performance.written
    ns = 2e9 * nbytes / read_rate(level, threads)  # half of the ceiling
    run = timed(run, ns, ns, ns, footprint=footprint)
    found = cache_efficiency(record(run), run)
    assert isinstance(found, CacheEfficiency)
    assert (found.level, found.source) == (level, "ceiling")
    assert found.efficiency == pytest.approx(0.5)
    faster = timed(run, 0.49 * ns, 0.49 * ns, 0.49 * ns, footprint=footprint)
    assert cache_efficiency(record(faster), faster) == f"the kernel was faster than the read ceiling of {level}"


FAST = timed(OWN, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("run", "more", "reason"),
    [
        (timed(OWN, 1e6, 1e6, 1e6, footprint=(16 << 20) + 1), {}, "the working set is larger than every known cache"),
        (OWN, {"caches": {}}, "the working set is larger than every known cache"),
        (OWN, {"known": ()}, "no read ceiling of L2 for 2 threads"),
        (OWN.model_copy(update={"threads": 3}), {}, "no read ceiling of L2 for 3 threads"),
        (FAST, {}, "the kernel was faster than the read ceiling of L2"),
        (refuted(OWN, "untimed"), {}, "no hot time"),
        (refuted(OWN, "incorrect"), {}, "a verdict refutes its time"),
        (OWN.model_copy(update={"device": "cuda"}), {}, "no counters of this GPU"),
    ],
)
def test_cache_efficiency_is_missing_with_a_reason(run: Run, more: dict[str, Any], reason: str) -> None:
    found = cache_efficiency(record(run, **more), run)
    assert isinstance(found, str)
    assert found.startswith(reason)


def test_a_contradicted_ceiling_is_not_used() -> None:
    """Memory that is read faster than L2."""
    run = timed(OWN, 1e6, 1e6, 1e6)
    assert isinstance(cache_efficiency(record(run), run), CacheEfficiency)
    faster = tuple(
        each.model_copy(update={"rate": each.rate * (99 if each.level == "memory" else 1)}) for each in ceilings("cpu")
    )
    assert cache_efficiency(record(run, known=faster), run) == "no read ceiling of L2 for 2 threads"


def test_a_gpu_has_its_counter() -> None:
    def counted(*rates: float | None) -> Run:
        functions = tuple(
            Function(name="f", target="sm_90", counters={} if rate is None else {HIT_RATE: rate}) for rate in rates
        )
        return OWN.model_copy(update={"device": "cuda", "code": Code(functions=functions)})

    run = counted(None, 62.5)
    assert cache_efficiency(record(run), run) == CacheEfficiency("L2", 0.625, "counter")
    assert cache_efficiency(record(run), counted(10.0, 90.0)) == "several functions were counted"
    assert cache_efficiency(record(run), counted(None)) == "no counters of this GPU in the Record"


def scaled(*given: tuple[int, float, float]) -> Run:
    """Threads, speed-up, half of its interval."""
    return OWN.model_copy(
        update={
            "scaling": tuple(
                Scaled(threads=threads, speedup=Ratio(median=middle, low=middle - half, high=middle + half, pairs=30))
                for threads, middle, half in given
            )
        }
    )


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (scaled((2, 1.9, 0.05), (4, 3.6, 0.1), (8, 6.0, 0.2)), 8),
        (scaled((2, 1.9, 0.05), (4, 3.6, 0.1), (8, 3.7, 0.1)), 4),  # more threads may be no faster
        (scaled((2, 1.9, 0.05), (4, 3.6, 0.1), (8, 3.75, 0.1)), 4),  # the intervals overlap
        (scaled((2, 1.9, 0.05), (4, 3.6, 0.1), (8, 3.85, 0.1)), 8),
        (scaled((2, 1.9, 0.05), (4, 3.6, 0.1), (8, 2.0, 0.1)), 4),
        (scaled((2, 0.7, 0.05), (4, 0.5, 0.02)), 1),
        (
            scaled(
                (2, 1.01, 0.05),
            ),
            1,
        ),
        (scaled((2, 1.9, 0.05), (4, 3.9, 3.0)), 2),  # too noisy
        (
            scaled(
                (2, 1.9, 1.8),
            ),
            None,
        ),
        (scaled(), None),
        (
            refuted(
                scaled(
                    (2, 1.9, 0.05),
                ),
                "doubted",
            ),
            None,
        ),
    ],
)
def test_best_threads(run: Run, expected: int | None) -> None:
    assert best_threads(run) == expected


@given(st.lists(st.tuples(st.floats(0.5, 64), st.floats(0, 0.2)), min_size=1, max_size=6))
def test_no_thread_count_is_clearly_better_than_the_best(figures: list[tuple[float, float]]) -> None:
    run = scaled(*((2 << number, middle, middle * half) for number, (middle, half) in enumerate(figures)))
    best = best_threads(run)
    by_threads = {1: Ratio(median=1, low=1, high=1, pairs=0)} | {each.threads: each.speedup for each in run.scaling}
    assert best is not None
    assert not any(each.low > by_threads[best].high for each in by_threads.values())
