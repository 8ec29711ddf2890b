"""`tritmark compare A B --plot` of two Records: which kernels became slower, in words and as a picture."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import Outcome, outcome_of
from made_up_records import HOSTILE, one_run, record_of

from tritmark.harness.cli.exit_status import PASSED, USAGE
from tritmark.harness.errors import NothingToCompareError, UsageError
from tritmark.harness.record import Ratio, Record, Run, with_digest
from tritmark.harness.report.compare import Change
from tritmark.harness.report.compare_plot import compared, html, picture, save

SPEEDS = {"scalar": 0.7, "sse41": 1.0, "avx2": 1.5, "avx512": 1.01}
"""How much faster each kernel is in the second Record."""


def run_of(variant: str, n: int, faster: float = 1.0, width: float = 0.004) -> Run:
    run = one_run(
        random.Random(n), ("i2s_quantize", "none", "int8", variant), axes={"n": n}, measured=True, function="f"
    )
    cold = run.performance.cold
    assert cold is not None
    middle = 0.4 * faster
    ratio = Ratio(median=middle, low=middle * (1 - width), high=middle * (1 + width), pairs=60)
    cold = cold.model_copy(update={"against": cold.against.model_copy(update={"fraction": ratio})})
    performance = run.performance.model_copy(update={"cold": cold, "hot": None})
    return run.model_copy(update={"performance": performance})


@pytest.fixture
def old() -> Record:
    return record_of([run_of(variant, n) for variant in SPEEDS for n in (1 << 20, 1 << 22)])


@pytest.fixture
def new(old: Record) -> Record:
    runs = tuple(run_of(variant, n, faster) for variant, faster in SPEEDS.items() for n in (1 << 20, 1 << 22))
    return old.model_copy(update={"id": "20250312T142233Z-00004f1c", "runs": runs})


def changes(old: Record, new: Record) -> dict[str, Change]:
    return {each.kernel.rpartition("/")[2]: each.change for each in compared(old, new).kernels}


def test_each_kernel_has_its_ratio_the_slowest_first(old: Record, new: Record) -> None:
    found = compared(old, new)
    assert [each.kernel.rpartition("/")[2] for each in found.kernels] == ["scalar", "sse41", "avx512", "avx2"]
    assert [each.ratio.median for each in found.kernels] == pytest.approx([0.7, 1.0, 1.01, 1.5])
    assert [each.change for each in found.kernels] == [Change.SLOWER, Change.SAME, Change.SAME, Change.FASTER]
    assert all(len(each.pairs) == 2 for each in found.kernels)
    assert found.headline.startswith("1 slower, 1 faster, 2 same")


def test_wide_intervals_and_workloads_that_differ_prove_nothing(old: Record, new: Record) -> None:
    wide = tuple(run_of("scalar", n, 0.9, width=0.2) for n in (1 << 20, 1 << 22))
    mixed = (run_of("avx2", 1 << 20, 0.8), run_of("avx2", 1 << 22, 1.25))
    changed = new.model_copy(update={"runs": (*wide, *mixed)})
    assert changes(old, changed) == {"scalar": Change.UNSURE, "avx2": Change.UNSURE}
    assert "single figures: 1 slower, 1 faster, 2 unsure" in compared(old, changed).notes
    notes = "\n".join(compared(old, changed).notes)
    assert "slower at single workloads: cpu/i2s_quantize/none/int8/avx2, cold, n=1048576: 0.8x" in notes
    assert "4 Runs only in 20250311T142233Z-00004f1c" in notes
    noisy = new.model_copy(update={"runs": tuple(run_of("scalar", n, 0.3, width=0.4) for n in (1 << 20, 1 << 22))})
    assert changes(old, noisy) == {"scalar": Change.UNSURE}
    assert any("too noisy to compare, hollow" in each for each in compared(old, noisy).notes)


def test_what_cannot_be_compared_is_refused(old: Record, new: Record) -> None:
    with pytest.raises(NothingToCompareError, match="both are the same Record"):
        compared(old, old)
    elsewhere = new.model_copy(update={"machine": new.machine.model_copy(update={"id": "another"})})
    with pytest.raises(UsageError, match="another machine"):
        compared(old, elsewhere)
    with pytest.raises(UsageError, match="no Run with a figure is in both"):
        compared(old, new.model_copy(update={"runs": (run_of("avx2", 1 << 10),)}))


def test_changes_differ_in_shape_and_not_only_in_colour(old: Record, new: Record) -> None:
    from tritmark.harness.report.picture import figure

    (axes,) = figure(picture(compared(old, new))).axes
    markers = [(each.get_marker(), each.get_markerfacecolor()) for each in axes.lines if np.size(each.get_xdata()) == 1]
    assert [marker for marker, _ in markers] == ["v", "o", "o", "^"]
    assert len({colour for _, colour in markers}) == 3


@pytest.fixture
def command(
    old: Record, new: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs `tritmark compare` beside the files of both Records."""
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(with_digest(old))
    Path("new.json").write_text(with_digest(new))

    def run(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, "compare", *arguments)

    return run


def test_the_command_tells_it_and_draws_it(command: Callable[..., Outcome]) -> None:
    status, out, err = command("old.json", "new.json", "--plot", "c.svg")
    assert status == PASSED, err
    assert out.startswith("1 slower, 1 faster, 2 same")
    assert re.search(r"i2s_quantize/none/int8/scalar +cold +0\.7x \(0\.69\d to 0\.70\d\) +slower", out), out
    assert "a change is no verdict; next: tritmark gate" in out
    svg = Path("c.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "prefers-color-scheme: dark" in svg
    assert "NOT BELIEVED" in err  # the planted fractions do not follow from the samples


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("old.json", "model.gguf"), "one is a Record, the other is not"),
        (("a.gguf", "b.gguf", "--plot", "c.png"), "--plot c.png beside weight files"),
        (("old.json", "new.json", "--layout", "arm"), "beside Records; legal: with weight files"),
        (("old.json", "new.json", "--plot", "c.gif"), "legal: .png, .svg, .html"),
        (("old.json", "none.json"), "No such file"),
        (("old.json", "old.json"), "both are the same Record"),
    ],
)
def test_other_uses_are_refused(command: Callable[..., Outcome], arguments: tuple[str, ...], words: str) -> None:
    status, _, err = command(*arguments)
    assert status == USAGE
    assert words in err


def test_a_picture_file_is_a_picture_and_names_break_nothing(old: Record, new: Record, tmp_path: Path) -> None:
    harmful = {"variant": HOSTILE, "kernel": f"cpu/i2s_quantize/none/int8/{HOSTILE}"}
    old, new = (
        each.model_copy(update={"runs": tuple(run.model_copy(update=harmful) for run in each.runs[:2])})
        for each in (old, new)
    )
    found = compared(old, new)
    assert save(found, tmp_path / "c.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    page = html(found)
    assert "<script>alert" not in page
    assert "slower" in page
