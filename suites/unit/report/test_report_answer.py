"""What the page says first: right? how fast? what is not believed, and why?"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from made_up_records import HOSTILE, MARKS, clean_runs, record_of

from tritmark.harness.record import Accuracy, MemoryUse, Performance, Record, Run, Status, WorkloadFacts
from tritmark.harness.report import answer, summary
from tritmark.harness.report.markdown import markdown
from tritmark.harness.report.page import render
from tritmark.harness.text.commands import whole

DRAWN = Performance(status=Status.NOT_RUN, reason="accuracy is judged here")


def quick() -> Record:
    return record_of(clean_runs(Random(3), edges=0, isas=("scalar", "avx2")))


def drawn(run: Run, **more: Any) -> Run:
    facts = WorkloadFacts(id=f"{run.op}[drawn]/drawn/drawn", axes={}, family="drawn", layout="drawn", seed=9)
    found = {
        "status": Status.PASS,
        "calls": 1024,
        "cases": 317,
        "elements": 9,
        "rarest": 0.0029,
        "covered": ("M 1",) * 40,
        "seed": 9,
    }
    update = {
        "id": f"{run.kernel} {facts.id}",
        "workload": facts,
        "accuracy": Accuracy(**{**found, **more}),
        "performance": DRAWN,
    }
    return run.model_copy(update=update)


def words(page: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page.replace("<wbr>", "")).split())


def first_screen(record: Record) -> str:
    page = render(record)
    return words(page[page.index("<h1>") : page.index("<table")])


def test_the_questions_come_before_any_table() -> None:
    told = first_screen(quick())
    places = [told.index(question) for question in ("Right?", "How fast?", "Not believed?")]
    assert places == sorted(places)
    assert "PASS 18 of 18 kernels are right." in told
    assert "No verdict is AMBIGUOUS and no figure is doubted." in told
    assert summary.status(quick()) == "PASS"


def test_what_drawn_cases_say_is_shown() -> None:
    record = quick()
    first = drawn(
        record.runs[0],
        status=Status.AMBIGUOUS,
        reason="classes not reached",
        uncovered=("K % 128 in 1 to 63", HOSTILE, MARKS),
    )
    record = record_of([*record.runs, first, *map(drawn, record.runs[5:8])])
    told = first_screen(record)
    assert "Each was judged on 1,024 calls or more: a fault in one of 345 calls would have been seen with 95 %." in told
    assert "No case reached these classes: K % 128 in 1 to 63" in told
    assert "1 not decided" in told
    page = render(record)
    assert "<script>alert" not in page
    power = (
        "judged on 1,024 calls in 317 cases; a fault in one of 345 calls would have been seen with 95 %; 40 "
        "classes of inputs reached"
    )
    assert power in words(page)
    assert "drawn, drawn" in words(page), "the Runs' inputs"
    assert summary.status(record) == "AMBIGUOUS"
    assert HOSTILE not in re.sub("`[^`]*`", "", markdown(record))


def test_a_wrong_kernel_is_nobody_s_best_and_its_case_is_told() -> None:
    record = quick()
    best = next(run for run in record.runs if run.variant == "avx2" and run.op == "i2s_quantize")
    case = "n=1029 ties, threads 3, x at offset 4"
    wrong = drawn(best, status=Status.FAIL, reason="q[4] is -1, expected 0; and more", mismatches=3, failed_case=case)
    page = render(record_of([*record.runs, wrong]))
    table = page[page.index("<caption><span>The best variant") :]
    row = next(row for row in table.split("<tr>") if "i2s_quantize" in row)
    assert "scalar" in row
    assert "avx2" not in row
    assert f"Case: {case}" in words(page)
    assert "FAIL 17 of 18 kernels are right, 1 wrong or broken." in words(page)


def test_a_doubted_figure_is_not_printed() -> None:
    record = quick()
    runs = [
        run.model_copy(update={"performance": run.performance.model_copy(update={"doubted": True})})
        for run in record.runs
    ]
    told = words(render(record_of(runs)))
    assert "DOUBTED" in told
    assert "The best variant of each op" not in told
    assert "Runs are not shown, because a guard doubts them" in told


def test_tables_have_intervals() -> None:
    page = render(quick())
    table = page[page.index("<caption><span>The best variant") :]
    assert re.search(r"µs ±0\.\d %", table[: table.index("</table>")])
    assert re.search(r"\d ±\d\.\d %", table[: table.index("</table>")])


def test_what_was_not_run_stands_by_cause() -> None:
    told = words(render(quick()))
    assert "What was not run, by cause; it is no PASS" in told
    assert f"{len(quick().runs)} 18 memory memory is not measured here" in told


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ({}, "PASS"),
        ({"memory": MemoryUse(status=Status.FAIL, reason="leaks")}, "FAIL"),
        ({"memory": MemoryUse(status=Status.AMBIGUOUS, reason="noise")}, "AMBIGUOUS"),
    ],
)
def test_the_status_of_the_whole(verdict: dict[str, Any], expected: str) -> None:
    record = quick()
    record = record_of([record.runs[0].model_copy(update=verdict), *record.runs[1:]])
    assert summary.status(record) == expected
    assert summary.status(record_of([])) == "NOT RUN"
    others = [each for each in answer.answers(record) if each.question == "What else failed?"]
    assert [each.told for each in others] == ([("1 kernel fails in memory",)] if expected == "FAIL" else [])


def test_the_command_that_repeats_has_the_seed() -> None:
    record = quick()
    assert whole(record).endswith("tritmark run --suite quick --seed 20250311")
    told = record.environment.model_copy(update={"command": ("tritmark", "run", "--seed", "4")})
    assert whole(record.model_copy(update={"environment": told})).endswith("tritmark run --seed 4")
