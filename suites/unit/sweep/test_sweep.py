"""`tritmark sweep` and `tritmark.sweep` as a user runs them, and their pictures."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from command_line import Outcome, outcome_of
from made_up_records import HOSTILE, one_run, record_of

import tritmark
from tritmark.harness.cli.exit_status import PASSED, USAGE
from tritmark.harness.errors import UsageError
from tritmark.harness.measure import ceilings
from tritmark.harness.providers import load
from tritmark.harness.record import Accuracy, Performance, Ratio, Record, Run, Status, with_digest
from tritmark.harness.store import Store, read
from tritmark.harness.sweep import Sweep
from tritmark.harness.sweep.drawing import MOST_LINES, drawn
from tritmark.harness.sweep.page import html, notes, picture_of
from tritmark.harness.sweep.plan import SweepOptions, planned
from tritmark.harness.verify import refuted
from tritmark.kernels.native.cpu import FORCE

Command = Callable[..., Outcome]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs tritmark in a folder of its own, without measuring ceilings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FORCE, raising=False)
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: [])

    def run(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, *arguments)

    return run


SWEEP = ("sweep", "i2s_dequantize", "--axis", "n=4096,16384", "--device", "cpu", "--threads", "1", "--seed", "7")


def test_a_sweep_is_a_record_with_pictures_and_a_table(command: Command) -> None:
    files = [word for suffix in ("png", "svg", "html") for word in ("--out", f"s.{suffix}")]
    status, out, err = command(*SWEEP, *files, "--frame", "s.csv", "--results", "mine")
    assert status == PASSED, err
    (path,) = Path("mine/runs").glob("*.json")
    record = read(path)
    assert refuted(record) == ()
    assert (record.suite, record.environment.seed) == ("sweep", 7)
    assert [run.workload.axes for run in record.runs] == [{"n": 4096}, {"n": 16384}]
    assert len({run.kernel for run in record.runs}) == 1, "the best kernel of each format"
    assert all(run.performance.hot is not None for run in record.runs)
    for each in (str(path), "s.png", "s.csv", f"tritmark report --out mine {record.id}"):
        assert each in out or "Next: " in out
    assert Path("s.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.parse("s.svg").getroot().tag.endswith("svg")
    assert "<svg" in Path("s.html").read_text()
    frame = pd.read_csv("s.csv")
    assert list(frame["axis_n"]) == [4096, 16384]
    assert list(frame["hot_ns"]) == [run.performance.hot.timing.median_ns for run in record.runs if run.performance.hot]


@pytest.mark.nightly  # a second sweep; the other test measures, too
def test_the_api_gives_the_figures_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    found = tritmark.sweep("i2s_dequantize", {"n": [4096, 16384]}, variant="scalar", device="cpu", threads=1)
    assert isinstance(found, Sweep)
    assert found.path == Path("results/runs") / f"{found.record.id}.json"
    for row, run in zip(found.frame.to_dict("records"), found.record.runs, strict=True):
        assert run.performance.hot is not None
        assert (row["variant"], row["axis_n"]) == ("scalar", run.workload.axes["n"])
        assert row["hot_ns"] == run.performance.hot.timing.median_ns
        assert row["hot_fraction"] == pytest.approx(run.performance.hot.against.fraction.median) or pd.isna(
            row["hot_fraction"]
        )
    found.plot("kept.svg")
    assert Path("kept.svg").is_file()
    words = " ".join(found.record.environment.command)
    assert words == "tritmark sweep i2s_dequantize --axis n=4096,16384 --variant scalar --device cpu --threads 1"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--out", "s.pdf", "its suffix is '.pdf'; legal: .png, .svg, .html"),
        ("--out", "nowhere/s.png", "there is no folder nowhere"),
        ("--frame", "s.xlsx", "its suffix is '.xlsx'; legal: .csv, .parquet"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_anything_runs(
    command: Command, option: str, value: str, words: str
) -> None:
    status, _, err = command(*SWEEP, option, value)
    assert (status, words in err) == (USAGE, True)
    assert not Path("results").exists()


# Pictures of made-up Records


def run_of(variant: str, m: int, **change: Any) -> Run:
    run = one_run(
        random.Random(m),
        ("ternary_matmul", "tile64", "float32", variant),
        axes={"M": m, "N": 2560, "K": 2560},
        measured=True,
    )
    return run.model_copy(update=change)


def too_noisy(run: Run) -> Run:
    cold = run.performance.cold
    assert cold is not None
    wide = Ratio(median=0.5, low=0.2, high=0.9, pairs=60)
    against = cold.against.model_copy(update={"fraction": wide})
    performance = run.performance.model_copy(update={"cold": cold.model_copy(update={"against": against})})
    return run.model_copy(update={"performance": performance})


def sweep_of(folder: Path, runs: list[Run], axes: dict[str, Any] | None = None) -> Sweep:
    record: Record = record_of(runs).model_copy(update={"suite": "sweep"})
    store = Store(folder)
    store.runs.mkdir(parents=True, exist_ok=True)
    store.path(record.id).write_text(with_digest(record))
    options = SweepOptions(op="ternary_matmul", axes=axes or {"M": "1..64"})
    return Sweep(record, planned(load(), options), store.path(record.id))


@pytest.fixture
def made(tmp_path: Path) -> Sweep:
    """Two kernels, a figure that is too noisy, one that is doubted, and a refusal."""
    runs = [run_of(variant, 2**n) for n in range(7) for variant in ("avx2", "avx512")]
    runs[2] = too_noisy(runs[2])
    runs[5] = runs[5].model_copy(
        update={
            "performance": runs[5].performance.model_copy(
                update={"status": Status.FAIL, "reason": "too fast", "doubted": True}
            )
        }
    )
    refusal = "M = 64 is over 32"
    runs[12] = runs[12].model_copy(
        update={
            "accuracy": Accuracy(status=Status.NOT_RUN, reason=refusal),
            "performance": Performance(status=Status.NOT_RUN, reason=refusal),
            "receipt": None,
        }
    )
    return sweep_of(tmp_path, runs)


def test_what_is_noisy_is_hollow_and_listed_and_what_has_no_figure_is_listed(made: Sweep) -> None:
    (noisy,) = made.too_noisy
    assert "avx2 at M=2, N=2560 K=2560, cold" in noisy
    text = "\n".join(notes(made))
    for words in ("1 figure too noisy, hollow", "NOT RUN: M = 64 is over 32", "too fast", "suite quick: N=2560 K=2560"):
        assert words in text
    assert len(made.left_out) == 2
    cold, _ = made.grids
    sizes = {line.label: [point.size for point in line.points] for line in cold.lines}
    assert sizes == {"avx2": [1, 2, 4, 8, 16, 32], "avx512": [1, 2, 8, 16, 32, 64]}
    assert [point.too_noisy for line in cold.lines for point in line.points].count(True) == 1
    _, middle, _ = made.plot().subfigs
    markers = [each for each in middle.subfigs[0].axes[0].lines if each.get_marker() in {"o", "s"}]
    paper = [each for each in markers if each.get_markerfacecolor() == "#fff"]
    assert [np.asarray(each.get_xdata()).tolist() for each in paper] == [[2]]
    assert len(markers) == 12


def test_figures_are_those_of_the_record(made: Sweep) -> None:
    runs = {(run.variant, run.workload.axes["M"]): run for run in made.record.runs}
    for grid in made.grids:
        for line in grid.lines:
            for point in line.points:
                measurement = getattr(runs[line.label, point.size].performance, grid.data)
                assert (point.ns, point.low_ns) == (measurement.timing.median_ns, measurement.timing.low_ns)
                assert point.share == measurement.against.fraction.median
    assert {grid.unit for grid in made.grids} <= {"bytes/s", "operations/s"}


def test_the_page_has_every_figure_and_needs_no_network(made: Sweep) -> None:
    page = html(made)
    assert page.count("<svg") == 2
    figures = sum(len(line.points) for grid in made.grids for line in grid.lines)
    assert page.count('<tr><th scope="row">cpu/') == figures
    assert "http:" not in page.replace("http://www.w3.org", "")
    assert "src=" not in page


def test_names_in_a_record_break_no_picture(tmp_path: Path) -> None:
    harmful = {"variant": HOSTILE, "kernel": f"cpu/ternary_matmul/tile64/float32/{HOSTILE}"}
    runs = [run_of("avx2", 2**n).model_copy(update=harmful) for n in range(3)]
    made = sweep_of(tmp_path, [*runs, *(run_of("avx512", 2**n) for n in range(3))])
    page = html(made)
    assert "<script>alert" not in page
    assert "<img src=http" not in page
    made.plot(tmp_path / "s.svg")
    assert len(list(ElementTree.parse(tmp_path / "s.svg").getroot().iter("{http://www.w3.org/2000/svg}script"))) == 0
    assert "<script" not in made._repr_html_()


def test_a_notebook_shows_the_picture_and_the_notes(made: Sweep) -> None:
    shown = made._repr_html_()
    found = re.search(r"data:image/svg\+xml;base64,([^']+)'", shown)
    assert found is not None
    assert ElementTree.fromstring(base64.b64decode(found[1])).tag.endswith("svg")
    assert "too noisy" in shown


def test_other_swept_axes_have_a_picture_each(tmp_path: Path) -> None:
    runs = [
        one_run(random.Random(k), ("ternary_matmul", "tile64", "float32", "avx2"), axes=axes, measured=True)
        for k in (256, 512)
        for m in (1, 2)
        if (axes := {"M": m, "N": 2560, "K": k})
    ]
    made = sweep_of(tmp_path, runs, {"M": "1,2", "N": 2560, "K": "256,512"})
    assert [grid.place for grid in made.grids] == [
        "N=2560 K=256, cold",
        "N=2560 K=256, hot",
        "N=2560 K=512, cold",
        "N=2560 K=512, hot",
    ]
    assert picture_of(made).height_pt > 900


def test_more_lines_than_can_be_told_apart_are_left_out_of_the_picture_and_named(tmp_path: Path) -> None:
    names = [f"kernel{number:02}" for number in range(MOST_LINES + 2)]
    runs = []
    for number, name in enumerate(names):
        run = run_of("avx2", 1).model_copy(
            update={"variant": name, "kernel": f"cpu/ternary_matmul/tile64/float32/{name}"}
        )
        hot = run.performance.hot
        assert hot is not None
        timing = hot.timing.model_copy(update={"median_ns": 1000.0 + number})
        performance = run.performance.model_copy(
            update={"cold": None, "hot": hot.model_copy(update={"timing": timing})}
        )
        runs.append(run.model_copy(update={"performance": performance}))
    made = sweep_of(tmp_path, runs)
    (grid,) = made.grids
    assert [line.label for line in drawn(grid)] == names[:MOST_LINES]
    assert any(note.endswith(": kernel16, kernel17") for note in notes(made))
    assert html(made).count('<tr><th scope="row">cpu/') == len(names), "the table has all"


def test_nothing_timed_is_refused_with_the_reasons(tmp_path: Path) -> None:
    none = Performance(status=Status.NOT_RUN, reason="no clock")
    made = sweep_of(tmp_path, [run_of("avx2", 1, performance=none)])
    with pytest.raises(UsageError, match=r"nothing was timed, so there is nothing to draw: .*no clock"):
        made.plot()


def test_a_changed_record_is_not_believed(made: Sweep, tmp_path: Path) -> None:
    first, *others = made.record.runs
    assert first.performance.cold is not None
    timing = first.performance.cold.timing.model_copy(update={"median_ns": 1.0})
    cold = first.performance.cold.model_copy(update={"timing": timing})
    run = first.model_copy(update={"performance": first.performance.model_copy(update={"cold": cold})})
    changed = Sweep(made.record.model_copy(update={"runs": (run, *others)}), made.plan, made.path)
    assert next(iter(notes(changed))).startswith("NOT BELIEVED")
    sound = sweep_of(tmp_path / "sound", [run_of("avx2", 1), run_of("avx2", 2)])
    assert not any("NOT BELIEVED" in note for note in notes(sound))
