"""The first part of the page: correctness, speed, doubts and their reasons."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from made_up_records import HOSTILE, MARKS, clean_runs, record_of

from tritmark.harness.cli import overview
from tritmark.harness.cli.outcome import status_of
from tritmark.harness.record import (
    Accuracy,
    Cross,
    MemoryUse,
    Performance,
    Record,
    Run,
    Status,
    Verdict,
    WorkloadFacts,
)
from tritmark.harness.report import answer, summary
from tritmark.harness.report.markdown import markdown
from tritmark.harness.report.page import render
from tritmark.harness.text import groups
from tritmark.harness.text.commands import whole
from tritmark.harness.text.outcome import outcome

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
    places = [told.index(question) for question in ("Correct?", "How fast?", "Doubted?")]
    assert places == sorted(places)
    assert "PASS 18 of 18 kernels are correct." in told
    assert "Every verdict is decided, and no figure is too noisy." in told
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
    assert "judged on 1,024 calls or more: a fault in one of 345 calls is detected with 95 % probability." in told
    assert "No case reached these classes: K % 128 in 1 to 63" in told
    assert "1 ambiguous" in told
    page = render(record)
    assert "<script>alert" not in page
    power = (
        "judged on 1,024 calls in 317 cases; a fault in one of 345 calls is detected with 95 % probability; 40 "
        "classes of inputs reached"
    )
    assert power in words(page)
    assert "drawn, drawn" in words(page), "the Runs' inputs"
    assert summary.status(record) == "AMBIGUOUS"
    assert HOSTILE not in re.sub("`[^`]*`", "", markdown(record))


def test_where_others_kernels_alone_were_measured_the_page_says_so() -> None:
    theirs = record_of([run.model_copy(update={"peer": True}) for run in quick().runs])
    told = first_screen(theirs)
    assert "Only peers were measured" in told
    assert "Nothing was measured" not in told


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
    assert "FAIL 17 of 18 kernels are correct, 1 failed." in words(page)


def slower_in_percent(run: Run, variant: str, ns: float, part: float, **workload: Any) -> Run:
    """The Run of a variant with this cold time and this fraction of the ceiling."""
    cold = run.performance.cold
    assert cold is not None
    timing = cold.timing.model_copy(update={"median_ns": ns, "low_ns": ns, "high_ns": ns})
    fraction = cold.against.fraction.model_copy(update={"median": part, "low": part, "high": part})
    footing = cold.model_copy(
        update={"timing": timing, "against": cold.against.model_copy(update={"fraction": fraction})}
    )
    performance = run.performance.model_copy(update={"cold": footing, **workload.pop("performance", {})})
    kernel = f"{run.kernel.rpartition('/')[0]}/{variant}"
    facts = run.workload.model_copy(update=workload)
    update = {"variant": variant, "kernel": kernel, "id": f"{kernel} {facts.id}", "workload": facts}
    return run.model_copy(update={**update, "performance": performance})


def test_the_best_variant_takes_the_least_time() -> None:
    """Even if its percentage is lower: the probe beside the slower variant was slower too."""
    run = next(run for run in quick().runs if run.op == "i2s_quantize" and run.performance.cold)
    percent, least = slower_in_percent(run, "percent", 330e3, 0.8), slower_in_percent(run, "least", 310e3, 0.7)
    small = {"id": "small", "axes": {"n": 64}, "performance": {"read": 10, "written": 10}}
    tiny = slower_in_percent(run, "least", 900.0, 0.1, **small), slower_in_percent(run, "percent", 800.0, 0.1, **small)
    runs = [percent, *tiny, least]
    assert {each.variant for each in groups.best_variant(runs)} == {"least"}
    assert groups.largest(groups.best_variant(runs)) == least
    assert groups.fastest(runs) == [least, tiny[1]]
    record = record_of(runs)
    assert groups.wins(record, least) == (1, 2)
    assert groups.wins(record, percent) == (1, 2)
    page = render(record)
    table = page[page.index("<caption><span>The best variant") :]
    row = next(row for row in table.split("<tr>") if "i2s_quantize" in row)
    assert "310 µs" in row
    assert "1 of 2" in row
    assert "330 µs" not in row
    assert "`least`" in markdown(record)
    shapes = page[page.index('<section id="shapes"') :]
    row = next(row for row in shapes.split("<tr>") if ">least</a>" in row)
    assert "◆ 70" in row


def test_a_variant_without_a_time_is_never_the_best() -> None:
    run = next(run for run in quick().runs if run.op == "i2s_quantize" and run.performance.cold)
    timed = slower_in_percent(run, "timed", 1e9, 0.01)
    bare = run.model_copy(update={"performance": run.performance.model_copy(update={"cold": None, "hot": None})})
    assert {each.variant for each in groups.best_variant([bare, timed])} == {"timed"}


def test_what_could_not_be_run_is_one_line_with_its_causes() -> None:
    record = quick()
    none: dict[str, Any] = {"status": Status.NOT_RUN, "reason": "the processor does not have amx"}
    verdicts = {
        "accuracy": Accuracy(**none),
        "performance": Performance(**none),
        "memory": MemoryUse(**none),
        "cross": Cross(**none),
    }
    absent = [
        record.runs[0].model_copy(update={**verdicts, "kernel": f"cpu/amx_{number}", "id": f"amx {number}"})
        for number in range(39)
    ]
    other = absent[0].model_copy(
        update={"kernel": "cpu/other", "id": "other", "accuracy": Accuracy(**{**none, "reason": "K is no multiple"})}
    )
    page = render(record_of([*record.runs, *absent, other]))
    section = page[page.index('<section id="verdicts"') : page.index('<section id="errors"')]
    told = words(section)
    assert "NOT RUN 40 kernels could not run here: the processor does not have amx, and 1 more cause" in told
    assert "K is no multiple: cpu/other" in told
    rows = section[section.index("<tbody>") : section.index("</tbody>")]
    assert rows.count("<tr>") == len({run.kernel for run in record.runs})
    assert section.count('<details class="kernel"') == len({run.kernel for run in record.runs})
    for run in (*absent, other):
        assert section.count(f'id="{groups.anchor(run.kernel)}"') == 1, "links to it still have a target"


def test_a_kernel_that_was_judged_in_part_keeps_its_row() -> None:
    record = quick()
    run = record.runs[0]
    run = run.model_copy(update={"accuracy": Accuracy(status=Status.NOT_RUN, reason="no reference here")})
    page = render(record_of([run]))
    assert "could not run here" not in words(page[page.index('<section id="verdicts"') :])


def test_an_absolute_error_has_its_own_heading() -> None:
    """An absolute error, such as 1.01e+31, is not in the column of ulps."""
    record = quick()
    accuracy = record.runs[0].accuracy.model_copy(update={"largest_error": 1.01e31, "largest_ulp": 0.5})
    page = render(record_of([record.runs[0].model_copy(update={"accuracy": accuracy}), *record.runs[1:]]))
    section = page[page.index('<section id="errors"') :]
    table = section[: section.index("</table>")]
    heads = [words(each) for each in re.findall(r"<tr>(.*?)</tr>", table[: table.index("</thead>")])]
    names = re.findall(r"<th[^>]*>([^<]*)</th>", table[: table.index("</thead>")])
    assert names[-2:] == ["ulp", "absolute"]
    assert "Largest error" in heads[0]
    assert "1.01e+31" in table
    caption = re.search(r"<caption><span>(.*?)</span>", table)
    assert caption is not None
    assert "units of the last place" not in caption[1]
    row = words(next(row for row in table.split("<tr>") if "1.01e+31" in row))
    assert re.search(r"0\.5\d* 1\.01e\+31", row), "ulp, then the absolute error"


def test_a_doubted_figure_is_not_printed() -> None:
    record = quick()
    runs = [
        run.model_copy(update={"performance": run.performance.model_copy(update={"doubted": True})})
        for run in record.runs
    ]
    told = words(render(record_of(runs)))
    assert "DOUBTED" in told
    assert "The best variant of each op" not in told
    assert "Runs are not shown, because a guard questioned them" in told
    run = next(run for run in runs if run.performance.hot is not None)
    assert "1 figure of 1 Run is not shown, because a guard questioned it" in words(render(record_of([run])))


def test_tables_have_intervals() -> None:
    page = render(quick())
    table = page[page.index("<caption><span>The best variant") :]
    assert re.search(r"µs ±0\.\d %", table[: table.index("</table>")])
    assert re.search(r"\d ±\d\.\d %", table[: table.index("</table>")])


@pytest.mark.nightly
def test_what_was_not_run_stands_by_cause() -> None:
    told = words(render(quick()))
    assert "Not run, by cause; not a PASS" in told
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
    assert [each.statements for each in others] == ([("1 kernel fails in memory",)] if expected == "FAIL" else [])


@pytest.mark.parametrize("failed", ["accuracy", "memory", "cross"])
@pytest.mark.parametrize("status", [Status.FAIL, Status.ERROR, Status.AMBIGUOUS])
def test_another_projects_kernel_does_not_fail_those_beside_it(failed: str, status: Status) -> None:
    """Headline, exit status, counts and page agree; failures of a peer are reported separately."""
    record = quick()
    kinds: dict[str, type[Verdict]] = {"accuracy": Accuracy, "memory": MemoryUse, "cross": Cross}
    wrong = {failed: kinds[failed](status=status, reason="leaks")}
    peer = record.runs[0].model_copy(
        update={"id": "cpu/theirs", "kernel": "cpu/theirs", "variant": "theirs", "peer": True, **wrong}
    )
    beside = record_of([*record.runs, peer])
    told = {each.question: each.statements for each in answer.answers(beside)}
    before = {each.question: each.statements for each in answer.answers(record)}
    assert outcome(beside).status is outcome(record).status is Status.PASS
    assert {strict: status_of(beside, strict=strict) for strict in (False, True)} == {
        strict: status_of(record, strict=strict) for strict in (False, True)
    }
    assert told == before | ({"Peers?": told["Peers?"]} if status is not Status.AMBIGUOUS else {})
    assert summary.headline(beside) == summary.headline(record)
    if status is not Status.AMBIGUOUS:
        assert told["Peers?"] == (f"Failed kernels of peers, which do not decide the verdict: 1 in {failed}",)
        (line,) = overview.failures(beside)
        assert "cpu/theirs" in line.plain
        assert "a peer: does not change the exit status" in line.plain
    assert "Kernels of peers, not counted" in words(render(beside))
    alone = record_of([peer])
    assert outcome(alone).status is (Status.AMBIGUOUS if status is Status.AMBIGUOUS else Status.FAIL)


def test_the_command_that_repeats_has_the_seed() -> None:
    record = quick()
    assert whole(record).endswith("tritmark run --suite quick --seed 20250311")
    told = record.environment.model_copy(update={"command": ("tritmark", "run", "--seed", "4")})
    assert whole(record.model_copy(update={"environment": told})).endswith("tritmark run --seed 4")


@pytest.mark.nightly
def test_what_of_the_model_is_not_applied_is_in_the_headline() -> None:
    record = quick().model_copy(update={"weights_note": "the transform is not applied"})
    (found,) = [each for each in answer.answers(record) if each.question == "Not applied?"]
    assert found.status is Status.NOT_RUN
    assert found.statements == ("the transform is not applied",)
    for text in (markdown(record), "".join(render(record))):
        assert "the transform is not applied" in text
    assert outcome(record).status is outcome(quick()).status
