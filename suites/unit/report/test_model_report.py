"""Whole models in reports: the plot, the page of a result, and the section beside a Record."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_model_results import frames, result, split
from made_up_records import small_record

from tritmark.harness.models import Frame, JudgedLayer
from tritmark.harness.record import Status
from tritmark.harness.report.model_page import headline, html, write
from tritmark.harness.report.models import boxes, results_of
from tritmark.harness.report.page import render
from tritmark.harness.report.section import PageContext


def test_the_plot_is_to_scale() -> None:
    found = boxes(split())
    top = [each for each in found if each.y == 0]
    assert [each.label for each in top] == ["block 0", "block 1", "lm_head", "Python"]
    assert sum(each.width for each in top) == pytest.approx(1000)
    assert [round(each.x) for each in top] == [0, 300, 600, 900]
    inside = [each for each in found if each.y > 0]
    assert all(any(t.x <= each.x and each.x + each.width <= t.x + t.width + 0.1 for t in top) for each in inside)
    assert [each.tip for each in found if each.tip.startswith("Python in")] == ["Python in self_attn: 500 µs"] * 2


def test_frames_without_width_are_not_drawn() -> None:
    tiny = Frame(name="norm", part="norms", ms=1e-4, own_ms=1e-4)
    assert len(boxes(split(frames=(*frames(), tiny)))) == len(boxes(split()))


def test_the_page_has_rates_engines_and_what_failed() -> None:
    page = html(result())
    for text in (
        "PASS (layers; graph not judged): 100 tokens/s decoding",
        "1.50x",
        "invalid ggml type 135",
        "block 0",
        "Of the ceiling",
        "at most",
    ):
        assert text in page, text


def test_the_page_of_a_failed_model_names_the_layer() -> None:
    wrong = JudgedLayer(name="model.layers.0.o_proj", was="AutoBitLinear", status=Status.FAIL, largest=3.0)
    found = result(layers=(wrong,))
    assert headline(found).startswith("FAIL: 100 tokens/s")
    assert "3.00 times its bound" in html(found)


def test_names_are_inert() -> None:
    evil = '</script><script>alert("x")</script>'
    frame = Frame(name=evil, part="rest", ms=10, own_ms=10)
    page = html(result(model=evil, notes=(evil,), splits=(split(frames=(frame,)),)))
    assert evil not in page
    assert "&lt;/script&gt;" in page


def test_the_report_of_a_record_has_the_models_of_its_machine(tmp_path: Path) -> None:
    record = small_record()
    write(result(machine=record.machine.id, tritmark="older", created="1"), tmp_path, "1")
    write(result(machine=record.machine.id, created="2"), tmp_path, "2")
    write(result(machine="another", model="elsewhere"), tmp_path, "3")
    (tmp_path / "4.json").write_text("{}")
    found, unread = results_of(record, tmp_path)
    assert [(each.model, each.created) for each in found] == [("made-up", "2")]
    assert unread == ("4.json",)
    page = render(record, PageContext(models=found, unread_models=unread))
    assert 'id="models"' in page
    assert "4.json" in page
    assert "elsewhere" not in page
    assert 'id="models"' not in render(record)
