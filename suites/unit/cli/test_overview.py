"""What `tritmark run` prints without --table: two screens, and in them what failed, what is noisy, what is fastest."""

from __future__ import annotations

import re
import shlex
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from known_commands import parsed
from made_up_records import clean_runs, full_record, on_the_simulator, record_of, small_record, two_devices
from rich.console import Console
from rich.table import Table

from tritmark.harness.cli import overview, show
from tritmark.harness.cli.tables import verdict
from tritmark.harness.record import (
    CeilingFacts,
    Gain,
    Measurement,
    Performance,
    Proposal,
    Record,
    Run,
    Status,
    with_digest,
)
from tritmark.harness.store import Store
from tritmark.harness.text.outcome import outcome
from tritmark.harness.text.table import fit, plain_table

SCREENS = 2 * 24
"""Lines of two screens."""


def quick() -> Record:
    return record_of(clean_runs(Random(3), edges=1))


def all_fail() -> Record:
    reason = "q[4] is -1, expected 0, and of 1029 elements 72 are wrong in the first case that was drawn " * 3
    runs = [
        run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"status": Status.FAIL, "reason": reason})})
        for run in quick().runs
    ]
    return record_of(runs)


def shown(
    record: Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int, *, as_json: bool = False
) -> tuple[str, str]:
    """Standard output and the error stream of `show`."""
    out, err = StringIO(), StringIO()

    def console(file: Any = None, *, stderr: bool = False) -> Console:
        return Console(file=err if stderr else out, width=width, markup=False, emoji=False, highlight=False)

    monkeypatch.setattr(show, "console", console)
    monkeypatch.setattr("typer.echo", lambda text, nl=True, err=False: None if err else out.write(text))
    monkeypatch.chdir(tmp_path)
    store = Store(Path("results"))
    store.path(record.id).parent.mkdir(parents=True, exist_ok=True)
    store.path(record.id).write_text(with_digest(record))
    show.show(record, store, as_json, seconds=61.25)
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "made", [quick, full_record, small_record, two_devices, on_the_simulator, all_fail, lambda: record_of([])]
)
def test_it_fits_two_screens(made: Any, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, err = shown(made(), monkeypatch, tmp_path, width)
    assert err == ""
    lines = out.splitlines()
    assert sum(max(1, -(-len(line) // width)) for line in lines) <= SCREENS, out
    assert lines[-1] == "Time: 61.2 s"
    assert lines[-2].startswith("Next: ")
    assert "tritmark " in lines[-2]


@pytest.mark.nightly
def test_what_failed_is_told_once_and_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = quick()
    wrong = record.runs[0].accuracy.model_copy(update={"status": Status.FAIL, "reason": "q[4] is -1, expected 0"})
    record = record_of([record.runs[0].model_copy(update={"accuracy": wrong}), *record.runs[1:]])
    out, err = shown(record, monkeypatch, tmp_path, 120)
    assert out.count(wrong.reason) == 1
    assert out.index(wrong.reason) < out.index(" correct, 1 failed") < out.index("fastest kernel"), "before the counts"
    assert re.search(rf"^Next: .*tritmark run .*--seed {record.environment.seed}  # repeats the same data$", out, re.M)
    out, err = shown(record, monkeypatch, tmp_path, 120, as_json=True)
    assert Record.model_validate_json(out).id == record.id
    assert err.count(wrong.reason) == 1


def test_few_of_many_failures_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = all_fail()
    lines = overview.failures(record)
    kernels = len({run.kernel for run in record.runs})
    assert str(lines[-1]) == f"and {kernels - len(lines) + 1} more, in the report"
    assert len(lines) <= overview.MOST_LINES


def wide(run: Run, factor: float) -> Run:
    def widened(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        timing = footing.timing
        update = {"low_ns": timing.median_ns * (1 - factor), "high_ns": timing.median_ns * (1 + factor)}
        return footing.model_copy(update={"timing": timing.model_copy(update=update)})

    found = run.performance
    return run.model_copy(
        update={"performance": found.model_copy(update={"cold": widened(found.cold), "hot": widened(found.hot)})}
    )


def test_a_busy_machine_is_told() -> None:
    record = quick()
    assert overview.suspicions(record) == []
    assert not overview.noisy(record)
    shaky = [wide(run, factor) for run, factor in zip(record.runs, (0.5, 0.3, 0.2), strict=False)]
    noisy = record_of([*shaky, *record.runs[3:]])
    (line,) = map(str, overview.suspicions(noisy))
    assert re.fullmatch(
        rf"Noisiest: {record.runs[0].kernel} \w+, [\d.]+ \w+, too noisy\. Next: repeat on a quiet machine\.", line
    )
    assert overview.noisy(noisy)
    ended = outcome(noisy)
    measured = [sum(bool(each) for each in (run.performance.cold, run.performance.hot)) for run in record.runs]
    assert (ended.noisy, ended.figures) == (sum(measured[:2]), sum(measured))
    assert f"{ended.noisy} of {ended.figures:,} figures are too noisy" in str(verdict(noisy))
    assert outcome(record).noisy == 0
    assert "too noisy (" not in str(verdict(record))


def test_a_part_of_the_ceiling_alone_may_be_too_noisy() -> None:
    record = quick()
    run = record.runs[0]
    assert run.performance.cold is not None
    against = run.performance.cold.against
    fraction = against.fraction.model_copy(update={"low": against.fraction.median / 3})
    cold = run.performance.cold.model_copy(update={"against": against.model_copy(update={"fraction": fraction})})
    shaky = run.model_copy(update={"performance": run.performance.model_copy(update={"cold": cold})})
    (line,) = map(str, overview.suspicions(record_of([shaky, *record.runs[1:]])))
    assert line.endswith(" cold, as a share of its ceiling. Next: repeat on a quiet machine.")


def test_what_is_too_noisy_is_no_fastest_kernel() -> None:
    """However small its time: the fastest of an op is the fastest of those that can be compared."""

    def names(runs: list[Run]) -> list[str]:
        table = overview.fastest(record_of(runs), 120)
        return [] if table is None else list(map(str, table.columns[1].cells))

    runs = list(quick().runs)
    assert any("avx512" in name for name in names(runs))
    shaky = [wide(run, 0.3) if run.variant == "avx512" else run for run in runs]
    assert len(names(shaky)) == len(names(runs))
    assert not any("avx512" in name for name in names(shaky))
    assert names([wide(run, 0.3) for run in runs]) == []


def test_ceilings_that_contradict_each_other_are_told() -> None:
    def ceiling(level: str, rate: float) -> CeilingFacts:
        return CeilingFacts(
            device="cpu", name="read", level=level, threads=2, nbytes=1 << 20, rate=rate, unit="bytes/s"
        )

    record = quick()
    sound = (ceiling("L1", 50e9), ceiling("L2", 90e9), ceiling("L3", 40e9), ceiling("memory", 42e9))
    for ceilings, told in (
        (sound, False),
        ((*sound[:2], ceiling("L3", 187e9), ceiling("memory", 40e9)), True),
        ((*sound[:3], ceiling("memory", 80e9)), True),
    ):
        changed = record.model_copy(update={"machine": record.machine.model_copy(update={"ceilings": ceilings})})
        lines = list(map(str, overview.suspicions(changed)))
        assert bool(lines) is told, lines
        assert all(line.startswith("Suspicious: cpu's read ceiling of ") for line in lines)


def scaled(run: Run, factor: float) -> Run:
    """The Run as it would be if its kernel took so many times as long."""

    def slower(footing: Measurement | None) -> Measurement | None:
        if footing is None:
            return None
        timing = footing.timing
        names = ("median_ns", "q1_ns", "q3_ns", "low_ns", "high_ns")
        update = {name: getattr(timing, name) * factor for name in names}
        return footing.model_copy(update={"timing": timing.model_copy(update=update)})

    found = run.performance
    return run.model_copy(
        update={"performance": found.model_copy(update={"cold": slower(found.cold), "hot": slower(found.hot)})}
    )


def rows(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [list(row) for row in zip(*(list(map(str, column.cells)) for column in table.columns), strict=True)]


def test_the_fastest_takes_the_least_time_and_is_right() -> None:
    """Whatever percent of its own ceiling it reaches."""
    runs = [run for run in quick().runs if run.op == "i2s_quantize" and run.variant in {"scalar", "avx2"}]
    for variant in ("scalar", "avx2"):
        record = record_of([scaled(run, 1e-3) if run.variant == variant else run for run in runs])
        ((op, kernel, *_),) = rows(overview.fastest(record, 120))
        assert (op, kernel) == ("i2s_quantize", variant)
        wrong = [
            run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"status": Status.FAIL, "reason": "x"})})
            if run.variant == variant
            else run
            for run in record.runs
        ]
        ((_, kernel, *_),) = rows(overview.fastest(record_of(wrong), 120))
        assert kernel != variant


def test_each_op_has_one_line_and_the_most_compared_come_first() -> None:
    record = quick()
    every = rows(overview.fastest(record, 120, 100))
    assert [row[0] for row in every] == list(dict.fromkeys(run.op for run in record.runs))
    (most,) = rows(overview.fastest(record, 120, 1))
    assert most[0] == "ternary_matmul"
    table = overview.fastest(record, 120, 2)
    assert table is not None
    assert str(table.caption).endswith(f"{len(every) - 2} ops more, in the report.")


def test_what_was_not_timed_is_counted() -> None:
    runs = [
        run.model_copy(update={"performance": Performance(status=Status.NOT_RUN, reason="not requested")})
        for run in quick().runs
    ]
    assert overview.fastest(record_of(runs), 80) is None
    assert ["cpu", "i2s_quantize", "4/4"] in rows(overview.right(record_of(runs)))
    assert overview.right(record_of([])) is None


@pytest.mark.parametrize("width", [1, 30, 40, 60, 79, 200])
def test_words_of_a_table_are_whole(width: int) -> None:
    table = plain_table("title", "kernel", "cold time", right=("cold time",))
    table.add_row("ternary_matmul tile64 float32 onnxruntime-int8", "1.51 ms ±>99%")
    table.add_row("activation_quantize", "189 ns ±1.4%")
    out = StringIO()
    needs = fit(table, width)
    Console(file=out, width=max(width, needs)).print(table)
    assert {"ternary_matmul", "onnxruntime-int8", "activation_quantize", "±>99%", "1.51"} <= set(out.getvalue().split())
    assert needs <= width or needs == len("activation_quantize") + len("±>99%") + 2


@pytest.mark.nightly
def test_the_next_command_is_one_that_parses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quiet = quick()
    busy = record_of([wide(quiet.runs[0], 0.5), *quiet.runs[1:]])
    run = quiet.runs[0]
    proposed = Proposal(
        rule="narrow-simd",
        run=run.id,
        kernel=run.kernel,
        workload=run.workload.id,
        title="t",
        evidence=(),
        gain=Gain(low=1.5, high=2.0),
        ceiling=3.0,
        edit="e",
        reproduce="tritmark run",
        verify="tritmark run",
    )
    elsewhere = quiet.environment.model_copy(update={"command": ("tritmark", "run", "--out", "else where")})
    found = []
    for record in (
        quiet,
        quiet.model_copy(update={"proposals": (proposed,), "environment": elsewhere}),
        busy,
        all_fail(),
        record_of([]),
    ):
        out, _ = shown(record, monkeypatch, tmp_path, 120)
        (line,) = (line for line in out.splitlines() if line.startswith("Next: "))
        words = shlex.split(line.removeprefix("Next: "), comments=True)
        words = words[words.index("tritmark") + 1 :]
        parsed(words)
        found.append(words[0])
    assert found == ["report", "advise", "doctor", "run", "run"]
