"""What `tritmark check` says of a kernel that is right and needlessly slow."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from made_up_records import clean_runs, record_of, small_record
from rich.text import Text

from tritmark.harness.advise.ledger import Ledger, LedgerEntry, MeasuredGain
from tritmark.harness.candidate.plan import Plan
from tritmark.harness.cli import comparison
from tritmark.harness.providers import load
from tritmark.harness.record import Cause, Gain, Performance, Proposal, Record, Run, Status, Timing
from tritmark.harness.text import groups, units

INSTALLED = load()


def test_only_sure_gains_of_the_kernel_that_is_checked_are_told_and_each_rule_once() -> None:
    record = small_record()
    mine, other = dict.fromkeys(run.kernel for run in record.runs), record.runs[-1].kernel
    kernel = next(iter(mine))
    assert kernel != other

    def proposed(rule: str, kernel: str, low: float) -> Proposal:
        return Proposal(
            rule=rule,
            run=f"{kernel} w",
            kernel=kernel,
            workload="w",
            title=rule,
            evidence=(),
            gain=Gain(low=low, high=9.0),
            ceiling=10.0,
            edit=f"mend {rule}",
            reproduce="tritmark run",
            verify="tritmark run",
        )

    found = record.model_copy(
        update={
            "proposals": (
                proposed("narrow-simd", kernel, 2.5),
                proposed("narrow-simd", kernel, 2.0),
                proposed("thread-scaling", kernel, 1.0),
                proposed("shape-cliff", other, 3.0),
            )
        }
    )
    variants = {variant.id: variant for variant in INSTALLED.registry.variants}
    plan = Plan((variants[kernel],), (variants[other],), INSTALLED.suite("quick"), ())
    told = [str(line) for line in comparison.proposals(found, plan, Ledger())]
    name = variants[kernel].name
    assert told == [f"{name}: narrow-simd (no outcome yet) on w, at least 2.50x: mend narrow-simd"]
    gain = MeasuredGain(median=2.6, low=2.6, high=2.6)
    outcome = LedgerEntry(
        rule="narrow-simd",
        kernel=kernel,
        workload="w",
        threads=1,
        machine="m",
        before="a",
        after="b",
        predicted=Gain(low=2.5, high=9.0),
        measured=gain,
        change="addressed",
    )
    told = [str(line) for line in comparison.proposals(found, plan, Ledger((outcome,)))]
    assert told == [f"{name}: narrow-simd on w, at least 2.50x: mend narrow-simd"]


def beside() -> tuple[Record, Plan]:
    """scalar as the user's kernel, beside the built-in avx2."""
    from types import SimpleNamespace

    runs = [
        run for run in clean_runs(Random(3), edges=1) if run.op == "i2s_quantize" and run.variant in {"scalar", "avx2"}
    ]
    known = {run.variant: SimpleNamespace(id=run.kernel, name=run.variant, key=run) for run in runs}
    plan: Any = Plan((cast(Any, known["scalar"]),), (cast(Any, known["avx2"]),), cast(Any, None), ())
    return record_of(runs), plan


def told(record: Record, plan: Plan) -> list[str]:
    return [str(line) for line in comparison.verdicts(record, plan)]


def test_a_pass_of_performance_says_how_fast_beside_the_built_in_kernel() -> None:
    record, plan = beside()
    reported = told(record, plan)
    (line,) = (line for line in reported if line.startswith("  performance"))
    runs = {
        variant: {run.workload.id: run for run in record.runs if run.variant == variant}
        for variant in ("scalar", "avx2")
    }
    ratios = [
        getattr(runs["avx2"][place].performance, data).timing.median_ns
        / getattr(run.performance, data).timing.median_ns
        for place, run in runs["scalar"].items()
        for data in ("cold", "hot")
        if getattr(run.performance, data) is not None
    ]
    at = reported.index(line)
    assert line.endswith(" (measured only)")
    speed = " ".join(reported[at + 1 : at + 4])
    ends = []
    for data in ("cold", "hot"):
        found = re.search(rf"(\S+)x {data} \((\S+)x to (\S+)x at \d shapes\)", speed)
        assert found, speed
        ends += [float(found[2]), float(found[3])]
        assert ends[-2] <= float(found[1]) <= ends[-1] < 1
    assert min(ends) == pytest.approx(min(ratios), rel=5e-3)
    assert max(ends) == pytest.approx(max(ratios), rel=5e-3)
    assert "relative to the built-in avx2" in speed
    assert "unequal threads" not in " ".join(reported)


def test_unequal_threads_are_stated() -> None:
    record, plan = beside()

    def on(run: Run, threads: int) -> Run:
        assert run.receipt is not None
        return run.model_copy(update={"receipt": replace(run.receipt, threads=threads)})

    runs = [on(run, 1 if run.variant == "scalar" else 8) for run in record.runs]
    lines = told(record_of(runs), plan)
    assert [line.strip() for line in lines if "threads" in line] == [
        "unequal threads: yours on 1 thread, the built-in on 8"
    ]


def test_each_line_about_a_kernel_fits_eighty_columns() -> None:
    record, plan = beside()
    lines = told(record, plan)
    assert len(lines) > 6
    assert [line for line in lines if len(line) > 80 and "judged on" not in line] == []


@pytest.mark.parametrize(("factor", "word"), [(29.0, "slower"), (1 / 29, "faster")])
def test_a_gap_far_over_the_noise_has_a_direction(factor: float, word: str) -> None:
    """A wide interval of 12x to 40x has a direction; a wide one around 1 has none."""
    (mine, other) = (timing_of(ns, ns / 1.5, ns * 1.5) for ns in (1000.0 * factor, 1000.0))
    assert mine.too_noisy
    assert comparison._wide(mine, other) == f"about 29.0x {word} (12.9x to 65.2x: wide)"
    assert comparison._wide(timing_of(1900.0, 1000.0, 3000.0), other) == ""
    assert comparison._ratio(mine, other).startswith("about ")
    assert comparison._ratio(timing_of(1900.0, 1000.0, 3000.0), other) == "too noisy"


def timing_of(median: float, low: float, high: float) -> Timing:
    found = next(run.performance.cold for run in beside()[0].runs if run.performance.cold is not None)
    return found.timing.model_copy(update={"median_ns": median, "low_ns": low, "high_ns": high})


@pytest.mark.parametrize("variant", ["scalar", "avx2"])
def test_times_that_are_too_noisy_are_no_speed(variant: str) -> None:
    record, plan = beside()

    def wide(run: Run) -> Run:
        found = run.performance
        assert found.cold is not None
        middle = found.cold.timing.median_ns
        timing = found.cold.timing.model_copy(update={"low_ns": middle / 9, "high_ns": middle * 9})
        cold = found.cold.model_copy(update={"timing": timing})
        return run.model_copy(update={"performance": found.model_copy(update={"cold": cold, "hot": None})})

    runs = [run for run in record.runs if run.performance.cold is not None]
    shaky = record_of([wide(run) if run.variant == variant else run for run in runs])
    (line,) = (line for line in told(shaky, plan) if line.startswith("  speed"))
    assert "cold too noisy to compare" in line
    table = comparison.times(shaky, plan)
    assert table is not None
    cold = [
        speed for data, speed in zip(table.columns[1].cells, table.columns[-1].cells, strict=True) if data == "cold"
    ]
    assert cold
    assert set(cold) == {"too noisy"}


def test_without_a_figure_of_both_nothing_is_said_of_speed() -> None:
    record, plan = beside()
    left = [
        run.model_copy(update={"performance": Performance(status=Status.NOT_RUN, reason="not requested")})
        if run.variant == "avx2"
        else run
        for run in record.runs
    ]
    assert not any("relative to" in line for line in told(record_of(left), plan))


def test_what_the_suite_left_to_other_runs_is_not_counted() -> None:
    record, plan = beside()
    skipped = Performance(status=Status.NOT_RUN, reason="accuracy is judged here", cause=Cause.SUITE)
    (first, *rest) = [run for run in record.runs if run.variant == "scalar"]
    others = [run for run in record.runs if run.variant == "avx2"]
    some = record_of([first.model_copy(update={"performance": skipped}), *rest, *others])
    (line,) = (line for line in told(some, plan) if line.startswith("  performance"))
    timed = [run.performance.status for run in rest]
    expected = (
        f"  performance  PASS {timed.count(Status.PASS)} Runs, NOT RUN {timed.count(Status.NOT_RUN)} (measured only)"
    )
    assert line == expected
    none = record_of([run.model_copy(update={"performance": skipped}) for run in (first, *rest)])
    (line,) = (line for line in told(none, plan) if line.startswith("  performance"))
    assert line == f"  performance  NOT RUN {len(rest) + 1} Runs"


def test_what_a_simulator_judged_says_so() -> None:
    from made_up_records import on_the_simulator

    record = on_the_simulator()
    variants = {variant.id: variant for variant in INSTALLED.registry.variants}
    run = next(run for run in record.runs if run.device == "cuda" and run.kernel in variants)
    plan = Plan((variants[run.kernel],), (), INSTALLED.suite("quick"), ())
    title, *_ = comparison.verdicts(record, plan)
    assert title == Text(f"{run.kernel} (simulated)", style="bold")


def test_the_times_have_their_percent_of_the_ceiling() -> None:
    record, plan = beside()
    table = comparison.times(record, plan)
    assert table is not None
    cells = {str(column.header): list(map(str, column.cells)) for column in table.columns}
    runs = [run for run in record.runs if run.variant == "scalar" and run.performance.cold is not None]
    parts = [groups.part(run.performance.cold) for run in runs]
    shown = [share for data, share in zip(cells["data"], cells["ceil."], strict=True) if data == "cold"]
    assert len(shown) == len(parts) > 1
    for part, share in zip(parts, shown, strict=True):
        assert part is None or float(share.removesuffix("%")) == pytest.approx(100 * part, abs=0.5)
    assert any(share.endswith("%") for share in cells["ceil. "])


@pytest.mark.parametrize(("count", "text"), [(0, "0 matrices"), (1, "1 matrix"), (1234, "1,234 matrices")])
def test_a_plural_follows_its_count(count: int, text: str) -> None:
    assert units.counted(count, "matrix", "matrices") == text
    assert units.counted(count, "Run").endswith("Run") is (count == 1)
