"""The rule latency-bound for kernels of a lesser instruction set than the best one of the processor."""

from __future__ import annotations

import pytest

from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rule import Finding
from tritmark.harness.advise.rules.latency_bound import RULE
from tritmark.harness.record import CeilingFacts, Ratio, Record, Run
from tritmark.kernels.native import cpu

BYTES, OPERATIONS, T = 1e6, 64e6, 1e6
"""64 operations per byte, in 1 ms."""


def run_of(record: Record, variant: str, operations: float = OPERATIONS) -> Run:
    run = next(each for each in record.runs if each.device == "cpu" and each.performance.hot is not None)
    hot = run.performance.hot
    assert hot is not None
    timing = hot.timing.model_copy(update={"median_ns": T, "low_ns": T, "high_ns": T})
    fraction = Ratio(median=0.01, low=0.01, high=0.01, pairs=30)
    hot = hot.model_copy(
        update={
            "timing": timing,
            "against": hot.against.model_copy(update={"fraction": fraction, "ceiling": "compute"}),
        }
    )
    figures = {"hot": hot, "read": round(BYTES), "written": 0, "operations": round(operations)}
    return run.model_copy(
        update={"variant": variant, "threads": 1, "performance": run.performance.model_copy(update=figures)}
    )


def judged(record: Record, run: Run, features: tuple[str, ...], **rates: float) -> Finding | None:
    ceilings = tuple(
        CeilingFacts(
            device="cpu",
            name=f"compute {name}",
            level="registers",
            threads=1,
            nbytes=0,
            rate=rate,
            unit="operations/s",
        )
        for name, rate in rates.items()
    )
    machine = record.machine.model_copy(update={"ceilings": ceilings, "features": features})
    return RULE.judge(Evidence(record.model_copy(update={"machine": machine, "runs": (run,)}), run))


def having(name: str) -> tuple[str, ...]:
    return tuple(sorted(cpu.ISAS[name].features))


def test_the_distance_is_from_the_rate_of_its_own_set(gpu_record: Record) -> None:
    """64e6 operations at 160e9/s take 0.4 ms; the ceiling of the best set would allow 100x."""
    found = judged(gpu_record, run_of(gpu_record, "avx2"), having("avx512"), avx2=160e9)
    assert found is not None
    assert found.gain.low == pytest.approx(1.0)
    assert found.gain.high == pytest.approx(2.5)
    assert any("compute avx2" in fact.source for fact in found.evidence)


def test_a_kernel_at_the_rate_of_its_own_set_gets_no_advice(gpu_record: Record) -> None:
    assert judged(gpu_record, run_of(gpu_record, "avx2"), having("avx512"), avx2=70e9) is None
    assert judged(gpu_record, run_of(gpu_record, "avx2"), having("avx512"), avx2=50e9) is None, (
        "or above it: by look-up"
    )


def test_another_set_s_ceiling_predicts_nothing(gpu_record: Record) -> None:
    """Older Records have none of the kernel's own set."""
    run = run_of(gpu_record, "avx2")
    assert judged(gpu_record, run, having("avx512")) is None
    assert judged(gpu_record, run, having("avx512"), sse41=160e9) is None
    assert judged(gpu_record, run_of(gpu_record, "scalar"), having("sse41")) is None


@pytest.mark.parametrize(
    ("variant", "features", "operations"),
    [
        ("avx512", "avx512", OPERATIONS),
        ("avx2", "avx2", OPERATIONS),
        ("my.kernel", "avx512", OPERATIONS),
        ("avx2", "avx512", 2 * BYTES),
    ],
)
def test_the_best_set_a_user_s_kernel_and_a_stream_are_judged_as_before(
    gpu_record: Record, variant: str, features: str, operations: float
) -> None:
    found = judged(gpu_record, run_of(gpu_record, variant, operations), having(features))
    assert found is not None
    assert found.gain.high == pytest.approx(100)


def test_each_lesser_set_of_this_host_has_a_ceiling() -> None:
    names = [each.name for each in cpu.KERNELS["probe"] if each.features <= cpu.features()]
    found = [each.name for each in cpu.DEVICE.ceilings().values() if each.name.startswith("compute")]
    assert found == ["compute", *(f"compute {name}" for name in names[:-1])]
