"""The terminal, the page, Markdown and the Record have one list of what was not judged. Everything made from a
contradicted Record reports that it is not believed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, outcome_of
from made_up_records import on_the_simulator, small_record
from rich.console import Console

from tritmark.harness.cli import show, tables
from tritmark.harness.judge.not_judged import not_judged, tensors_left_out
from tritmark.harness.judge.request import Request
from tritmark.harness.league.contenders import tables as league_tables
from tritmark.harness.league.model import League
from tritmark.harness.providers import load
from tritmark.harness.record import Cause, NotJudged, NotJudgedKind, Record, Run, Status, with_digest
from tritmark.harness.report import answer, build
from tritmark.harness.report.landing import build_all
from tritmark.harness.report.league import write
from tritmark.harness.report.markdown import markdown
from tritmark.harness.report.page import render
from tritmark.harness.report.section import PageContext
from tritmark.harness.text import unseen
from tritmark.harness.text.distrust import distrust
from tritmark.harness.verify import refuted

KINDS = tuple(
    NotJudged(kind=kind, about=(f"<{kind.value}>", "b", "c", "d"), told=f"because of {kind.value}")
    for kind in NotJudgedKind
)


def words(page: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page.replace("<wbr>", "")).replace("&lt;", "<").replace("&gt;", ">").split())


def with_limits(record: Record) -> Record:
    return record.model_copy(update={"not_judged": KINDS})


def test_the_list_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    record = with_limits(small_record())
    out = StringIO()
    screen = Console(file=out, width=200, markup=False, emoji=False, highlight=False)
    monkeypatch.setattr(show, "console", lambda stderr=False: screen)
    show._tell(record, every=False)
    terminal, page, text = " ".join(out.getvalue().split()), words(render(record)), markdown(record)
    for each in KINDS:
        told = unseen.line(each)
        assert told.endswith(f"and 1 more: because of {each.kind.value}")
        assert told in terminal
        assert told in page
        assert told in text
    headline = unseen.headline(record)
    assert headline.startswith("Not judged: 4 simulated devices; accuracy, in part, of 4 kernels; ")
    assert headline in terminal
    assert headline in page
    assert headline in text
    assert Record.model_validate_json(with_digest(record)).not_judged == KINDS


def test_where_all_was_judged_nothing_is_said() -> None:
    record = small_record()
    assert unseen.headline(record) == ""
    assert list(tables.not_judged(record)) == []
    assert "not judged" not in render(record).lower()


def test_tensors_that_were_left_out_have_their_share() -> None:
    found = tensors_left_out([("a", 30), ("b", 10)], 400, "of a type that is not read")
    assert found.share == 0.1
    assert "a, b (10.0 % of the bytes): of a type that is not read" in unseen.line(found)
    record = small_record().model_copy(update={"not_judged": (found,)})
    assert unseen.headline(record) == "Not judged: 2 tensors (10.0 % of the bytes)"


def listed(runs: tuple[Run, ...], **more: Any) -> tuple[NotJudged, ...]:
    return not_judged(load(), Request(suite=load().suite("quick"), **more), runs)


def test_limits_of_verdicts_are_gathered_by_what_they_say() -> None:
    by_kernel = {run.kernel: run for run in small_record().runs if run.format == "none"}
    first, second, *_ = by_kernel.values()
    limits = {
        "accuracy": first.accuracy.model_copy(update={"limits": ("other paths were not run",)}),
        "memory": first.memory.model_copy(update={"limits": ("the peak is not known",)}),
        "performance": first.performance.model_copy(update={"limits": ("threads were not counted",)}),
    }
    runs = tuple(run.model_copy(update=limits) for run in (first, second))
    assert [(each.kind, each.about, each.told) for each in listed(runs)] == [
        (NotJudgedKind.ACCURACY, (first.kernel, second.kernel), "other paths were not run"),
        (NotJudgedKind.MEMORY, (first.kernel, second.kernel), "the peak is not known"),
        (NotJudgedKind.PERFORMANCE, (first.kernel, second.kernel), "threads were not counted"),
    ]


def test_formats_without_originals_and_simulated_devices_are_listed() -> None:
    found = {each.kind: each for each in listed(on_the_simulator().runs)}
    assert found[NotJudgedKind.SIMULATED].about == ("cuda",)
    assert "(simulated)" in found[NotJudgedKind.SIMULATED].told
    run = next(run for run in small_record().runs if run.format == "none")
    (order,) = listed((run.model_copy(update={"format": "qk256"}),))
    assert (order.kind, order.about) == (NotJudgedKind.ORDER, ("qk256",))
    assert listed((run.model_copy(update={"format": "tq2_0"}),)) == (), "compared with golden vectors"


def test_a_workload_that_every_kernel_refuses_is_listed() -> None:
    suite = load().suite("quick")
    workload = next(item.workload for item in suite.selected if not item.workload.drawn)
    run = next(run for run in small_record().runs if run.format == "none")
    facts = run.workload.model_copy(update={"id": workload.id})
    refused = run.accuracy.model_copy(update={"status": Status.NOT_RUN, "reason": "N = 33 is no multiple of 8"})
    left = run.model_copy(update={"workload": facts, "accuracy": refused})
    (found,) = listed((left,))
    assert (found.kind, found.about) == (NotJudgedKind.WORKLOADS, (workload.id,))
    assert found.told == "no kernel takes them: N = 33 is no multiple of 8"
    taken = run.model_copy(update={"workload": facts})
    assert listed((left, taken)) == ()


def test_a_simulator_is_why_nothing_was_measured() -> None:
    """Even if Runs have other reasons too."""
    record = on_the_simulator()
    runs = []
    for nth, run in enumerate(run for run in record.runs if run.device == "cuda"):
        reason, cause = ("N = 33 is no multiple of 8", None) if nth % 2 else ("simulated: no speed", Cause.SIMULATOR)
        left_out = run.performance.model_copy(update={"status": Status.NOT_RUN, "reason": reason, "cause": cause})
        runs.append(run.model_copy(update={"performance": left_out}))
    told = [
        each for found in answer.answers(record.model_copy(update={"runs": tuple(runs)})) for each in found.statements
    ]
    assert "Nothing was measured: simulated: no speed" in told
    assert any(each.endswith(f"{len({run.kernel for run in runs})} of them simulated") for each in told)
    others = tuple(run.model_copy(update={"performance": runs[1].performance}) for run in runs)
    told = [each for found in answer.answers(record.model_copy(update={"runs": others})) for each in found.statements]
    assert "Nothing was measured: cuda was simulated, and a simulator has no speed" in told


# Records that contradict themselves


@pytest.fixture
def forged(gpu_record: Record) -> Record:
    """A Record with a figure ten times as good and a matching digest."""
    first, *others = gpu_record.runs
    assert first.performance.cold is not None
    timing = first.performance.cold.timing.model_copy(
        update={"median_ns": first.performance.cold.timing.median_ns / 10}
    )
    cold = first.performance.cold.model_copy(update={"timing": timing})
    run = first.model_copy(update={"performance": first.performance.model_copy(update={"cold": cold})})
    return gpu_record.model_copy(update={"runs": (run, *others)})


def kept(record: Record, out: Path) -> Path:
    path = out / "runs" / f"{record.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_digest(record), encoding="utf-8")
    return path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, *arguments)

    return run


@pytest.mark.nightly
def test_a_genuine_page_stays_beside_that_of_a_forged_record(
    gpu_record: Record, forged: Record, tmp_path: Path
) -> None:
    genuine = build(gpu_record, tmp_path)
    before = genuine.read_bytes()
    told = distrust(refuted(forged))
    assert told.startswith("NOT BELIEVED: tritmark verify refutes this Record: figures: ")
    page = build(forged, tmp_path, PageContext(distrust=told))
    assert page.name == f"{gpu_record.id}.not-believed.html"
    assert genuine.read_bytes() == before
    assert told in words(page.read_text())
    assert markdown(forged, PageContext(distrust=told)).startswith("**NOT BELIEVED** ")
    assert "NOT BELIEVED" not in before.decode() + markdown(gpu_record)


def test_every_command_marks_a_forged_record(
    gpu_record: Record, forged: Record, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    out = tmp_path / "results"
    baseline = gpu_record.model_copy(update={"id": "20250101T000000Z-00000000"})
    kept(baseline, out)
    kept(forged, out)
    genuine = build(gpu_record, out / "html").read_bytes()
    for arguments in ((), ("--format", "md"), ("--against", baseline.id)):
        status, told, error = command("report", forged.id, "--out", str(out), *arguments)
        assert status == 0
        assert "NOT BELIEVED" in error
        assert "NOT BELIEVED" in (told if "md" in arguments else Path(told.strip()).read_text())
    status, told, error = command("report", baseline.id, "--against", forged.id, "--out", str(out))
    assert f"refutes the baseline {forged.id}" in words(Path(told.strip()).read_text())
    status, told, _ = command("report", "--all", "--out", str(out))
    index = Path(told.strip()).read_text()
    assert index.count("NOT BELIEVED") == 1
    assert f'href="{forged.id}.not-believed.html"' in index
    status, told, _ = command("advise", forged.id, "--out", str(out))
    assert told.startswith("NOT BELIEVED")
    assert json.loads(command("advise", forged.id, "--out", str(out), "--json")[1])["distrust"]
    status, told, error = command("frame", "--results", str(out))
    assert f"refutes {forged.id}" in error
    assert baseline.id not in error
    status, told, error = command("league", forged.id, "--out", str(out), "--json")
    assert json.loads(told)["distrust"]
    assert "NOT BELIEVED" in error
    for suffix in ("html", "md", "json"):
        assert "NOT BELIEVED" in (out / "league" / f"{forged.id}.not-believed.{suffix}").read_text()
    assert (out / "html" / f"{gpu_record.id}.html").read_bytes() == genuine


@pytest.mark.nightly
def test_every_command_refuses_a_changed_record(
    gpu_record: Record, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    """Nothing is written for it, and existing files stay."""
    out = tmp_path / "results"
    other = gpu_record.model_copy(update={"id": "20250101T000000Z-00000000"})
    kept(other, out)
    path = kept(gpu_record, out)
    genuine = build(gpu_record, out / "html").read_bytes()
    path.write_text(path.read_text().replace('"suite":"quick"', '"suite":"quack"', 1))
    for arguments in (
        ("report", gpu_record.id),
        ("report", gpu_record.id, "--format", "md"),
        ("report", other.id, "--against", gpu_record.id),
        ("advise", gpu_record.id),
        ("league", gpu_record.id),
    ):
        status, told, error = command(*arguments, "--out", str(out))
        assert (status, told) == (2, "")
        assert "was changed after it was written" in error
        assert f"next: tritmark verify {path}" in error
    status, told, error = command("frame", "--results", str(out))
    assert (status, told) == (2, "")
    status, told, error = command("report", "--all", "--out", str(out))
    index = Path(told.strip()).read_text()
    assert f"{path.name}: {path}: the file was changed" in words(index)
    assert f'href="{gpu_record.id}' not in index
    assert (out / "html" / f"{gpu_record.id}.html").read_bytes() == genuine
    assert not (out / "league").exists()


def test_a_league_has_pages_of_its_own_name(gpu_record: Record, tmp_path: Path) -> None:
    made = League(
        record=gpu_record.id,
        created=gpu_record.created,
        suite=gpu_record.suite,
        tritmark="0",
        machine="m",
        tables=league_tables(gpu_record),
    )
    pages = write(made, tmp_path)
    before = {suffix: path.read_bytes() for suffix, path in pages.items()}
    assert not any(b"NOT BELIEVED" in text for text in before.values())
    write(made.model_copy(update={"distrust": "NOT BELIEVED: why"}), tmp_path)
    assert {suffix: path.read_bytes() for suffix, path in pages.items()} == before


def test_honest_records_are_believed(tmp_path: Path, gpu_record: Record) -> None:
    """Also the page of a simulated Record."""
    for record in (gpu_record, on_the_simulator()):
        assert refuted(record) == ()
    page = build_all([kept(gpu_record, tmp_path)], tmp_path / "html")
    assert "NOT BELIEVED" not in page.read_text()
