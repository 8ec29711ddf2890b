"""What `tritmark run` prints, in terminals of several widths: the verdict first, no word broken, doubts and causes
told."""

from __future__ import annotations

import re
from io import StringIO
from random import Random
from typing import Any, cast

import pytest
from made_up_records import clean_runs, full_record, record_of, small_record
from rich.console import Console

from tritmark.harness.cli import show, tables
from tritmark.harness.cli.progress import Terminal
from tritmark.harness.record import (
    Accuracy,
    Measurement,
    Performance,
    Ratio,
    Record,
    Run,
    Scaled,
    Status,
    WorkloadFacts,
)
from tritmark.harness.text.visible import sentence

LONG_REASON = "q[4] is -1, expected 0; 72 of 1029 elements are incorrect in case 1; and so on\nand on"


def printed(record: Record, monkeypatch: pytest.MonkeyPatch, width: int, *, every: bool = False) -> str:
    out = StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False)
    monkeypatch.setattr(show, "console", lambda stderr=False: console)
    show._tell(record, every=every)
    return out.getvalue()


def quick() -> Record:
    return record_of(clean_runs(Random(3), edges=1))


def drawn(run: Run, **more: Any) -> Run:
    """A Run of drawn cases, as accuracy is judged."""
    facts = WorkloadFacts(id=f"{run.op}[drawn]/drawn/drawn", axes={}, family="drawn", layout="drawn", seed=9)
    found = {
        "status": Status.PASS,
        "calls": 1024,
        "cases": 300,
        "rarest": 3 / 1024,
        "covered": ("M 9 to 15",),
        "seed": 9,
    }
    accuracy = Accuracy(**{**found, **more})
    performance = Performance(status=Status.NOT_RUN, reason="accuracy is judged here")
    return run.model_copy(
        update={"id": f"{run.kernel} {facts.id}", "workload": facts, "accuracy": accuracy, "performance": performance}
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_word_is_broken_and_no_line_is_longer(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    record = quick()
    told = printed(record, monkeypatch, width, every=True)
    assert max(map(len, told.splitlines())) <= width
    words = set(told.replace(",", " ").replace(";", " ").split())
    for run in record.runs:
        assert {run.op, run.variant} <= words, "a name is in one piece"
        assert run.format == "none" or run.format in words


def test_a_table_that_is_wider_than_the_terminal_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (run, *_) = (run for run in quick().runs if run.op == "i2s_quantize" and run.variant == "avx2")
    long = run.model_copy(update={"variant": "a" * 90, "kernel": "cpu/i2s_quantize/none/int8/" + "a" * 90})
    told = printed(record_of([long]), monkeypatch, 60, every=True)
    assert "a" * 90 in told.split()
    assert told.count("±") >= 4


def test_no_column_is_empty_and_no_row_has_only_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        run.model_copy(update={"performance": Performance(status=Status.NOT_RUN, reason="not requested")})
        if run.format in {"tq2_0", "none"}
        else run
        for run in quick().runs
    ]
    told = printed(record_of(runs), monkeypatch, 120, every=True)
    assert "not PASS" not in told
    assert not re.search(r"^\S.*  +–  +–( |$)", told, re.MULTILINE)
    assert "Judged and not timed: " in told
    assert "Not timed: " in told
    runs[0] = drawn(runs[0], status=Status.FAIL, reason=LONG_REASON)
    assert "not PASS" in printed(record_of(runs), monkeypatch, 120, every=True)


def test_the_verdict_comes_first_and_details_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    record = quick()
    narrow, wide, table = printed(record, monkeypatch, 80), printed(record, monkeypatch, 200), None
    table = printed(record, monkeypatch, 80, every=True)
    for told in (narrow, wide, table):
        assert told.startswith("PASS: 36 of 36 kernels are correct. The best kernels of 9 ops and formats reach ")
    assert "scalar" not in narrow + wide
    assert "scalar" in table
    assert re.search(r"±\d\.\d%", narrow)


def test_how_threads_share_the_work_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    (run, *_) = (run for run in quick().runs if run.op == "i2s_quantize" and run.variant == "avx2")
    speedup = Ratio(median=1.6, low=1.5, high=1.7, pairs=30)
    known = Scaled(threads=2, speedup=speedup, efficiency=0.8, balance=0.9, utilization=0.85)
    for scaling, shown in (
        (known, "1.60x (1.50 to 1.70) 90.0 % 85.0 %"),
        (Scaled(threads=2, speedup=speedup), "1.60x (1.50 to 1.70) unknown unknown"),
    ):
        record = record_of([run.model_copy(update={"scaling": (scaling,)})])
        assert shown in " ".join(printed(record, monkeypatch, 140, every=True).split())
    alone = record_of([run.model_copy(update={"scaling": ()})])
    assert "utilization" not in printed(alone, monkeypatch, 140, every=True)


def test_an_op_and_format_is_one_line_where_names_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(quick(), monkeypatch, 100, every=True).splitlines()
    (line,) = (line for line in lines if line.startswith("ternary_matmul tq2_0"))
    assert line.split()[2] == "avx512"
    assert "4/4" in line
    assert line.count("±") == 2


def test_a_figure_that_a_guard_doubts_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of([run for run in quick().runs if run.op == "i2s_quantize" and run.variant == "avx2"])
    before = printed(record, monkeypatch, 120, every=True)
    assert "µs" in before

    def doubted(run: Run) -> Run:
        return run.model_copy(update={"performance": run.performance.model_copy(update={"doubted": True})})

    told = printed(record.model_copy(update={"runs": tuple(map(doubted, record.runs))}), monkeypatch, 120, every=True)
    assert "doubted" in told
    assert "µs" not in told
    assert "not shown, because a guard questioned them" in told


def test_a_probe_that_was_no_ceiling_gives_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    (run, *_) = (run for run in quick().runs if run.op == "i2s_quantize" and run.variant == "avx2")

    def lost(footing: Measurement | None) -> Measurement | None:
        return footing and footing.model_copy(update={"against": footing.against.model_copy(update={"lost": True})})

    performance = run.performance.model_copy(
        update={name: lost(getattr(run.performance, name)) for name in ("cold", "hot")}
    )
    told = printed(record_of([run.model_copy(update={"performance": performance})]), monkeypatch, 120, every=True)
    assert told.count("±") >= 4, "times are times"
    assert not re.search(r"\d%  ? *\d", re.sub(r"±\d\.\d%", "", told))


def test_doubts_and_causes_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list(quick().runs)
    for number in (0, 1, 2):
        doubt = {"status": Status.AMBIGUOUS, "reason": f"others took 0.{number} of 2 cores meanwhile"}
        runs[number] = runs[number].model_copy(
            update={"performance": runs[number].performance.model_copy(update=doubt)}
        )
    told = " ".join(printed(record_of(runs), monkeypatch, 200, every=True).split())
    assert told.startswith("AMBIGUOUS: 36 of 36 kernels are correct.")
    assert "3 in performance, such as: others took 0.0 of 2 cores meanwhile." in told
    assert "252 36 memory: memory is not measured here" in told or "memory: memory is not measured here" in told
    assert told.count("memory is not measured here") == 1


def test_drawn_cases_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = quick().runs[0]
    record = record_of(
        [
            first,
            drawn(first, status=Status.AMBIGUOUS, reason="a class was not reached", uncovered=("K % 128 in 1 to 63",)),
        ]
    )
    told = " ".join(printed(record, monkeypatch, 80, every=True).split())
    assert "judged on 1,024 calls or more: a fault in one of 341 calls is detected with 95 % probability." in told
    assert "No case reached these classes: K % 128 in 1 to 63." in told
    assert "0 of 1 kernel is correct, 1 ambiguous" in told


def test_a_failure_is_told_with_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    first = quick().runs[0]
    wrong = drawn(first, status=Status.FAIL, reason=LONG_REASON, failed_case="n=65, threads 3, x at offset 4")
    told = " ".join(printed(record_of([first, wrong]), monkeypatch, 80).split())
    assert told.partition(" FAIL: 0 of 1 kernel is correct, 1 failed.")[1]
    assert f"{first.kernel}: accuracy FAIL: q[4] is -1, expected 0 (n=65, threads 3, x at offset 4)" in told


@pytest.mark.parametrize("record", [full_record(), small_record(), record_of([])], ids=["hostile", "small", "empty"])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_any_record_can_be_told(monkeypatch: pytest.MonkeyPatch, record: Record, width: int) -> None:
    told = printed(record, monkeypatch, width, every=True)
    assert told
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_the_live_line_counts_failures_and_keeps_one_sentence_of_each() -> None:
    out = StringIO()
    with Terminal(Console(file=out, width=200)) as terminal:
        terminal.finished(drawn(quick().runs[0], status=Status.FAIL, reason=LONG_REASON))
    assert "1 failed" in out.getvalue()
    assert "FAIL " not in out.getvalue()
    (line,) = terminal.failures
    assert line.startswith("FAIL cpu/")
    assert line.endswith(": q[4] is -1, expected 0")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one. Two.", "one"),
        ("0.5 of 2; more", "0.5 of 2"),
        ("a\nb", "a"),
        ("file.c:3: x", "file.c:3: x"),
        ("", ""),
        ("x" * 300, "x" * 197 + "..."),
    ],
)
def test_sentences(text: str, first: str) -> None:
    assert sentence(text) == first


def test_a_candidate_stands_beside_the_built_in_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from tritmark.harness.candidate.plan import Plan
    from tritmark.harness.cli.comparison import times

    runs = [run for run in quick().runs if run.op == "i2s_quantize" and run.variant in {"scalar", "avx2"}]
    ids = {run.variant: SimpleNamespace(id=run.kernel) for run in runs}
    plan: Any = Plan((cast(Any, ids["scalar"]),), (cast(Any, ids["avx2"]),), cast(Any, None), ())

    def told(found: list[Run]) -> list[str]:
        console = Console(file=StringIO(), width=80)
        console.print(times(record_of(found), plan))
        return cast(StringIO, console.file).getvalue().splitlines()

    lines = told(runs)
    assert max(map(len, lines)) <= 80
    assert sum(" cold " in line and line.count("±") == 2 for line in lines) == 3
    assert sum(" hot " in line and line.count("±") == 2 for line in lines) == 3
    shaky = [
        run.model_copy(update={"performance": run.performance.model_copy(update={"doubted": True})}) for run in runs
    ]
    assert all("µs" not in line and "ms" not in line for line in told(shaky))
    assert sum(line.count("doubted") for line in told(shaky)) == 12


def test_every_status_has_a_style() -> None:
    assert set(tables.STYLES) == set(Status)
