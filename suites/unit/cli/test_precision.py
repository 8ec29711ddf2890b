"""`tritmark precision`: what it prints, writes and picks. What is measured is tested in suites/accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tritmark.harness import providers
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNAVAILABLE
from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.precision import PrecisionResult, Precisions, PrecisionTable, Shape, fastest, totals

MODES = {"fp32": (9.0, 1e-7), "fp16": (2.0, 3e-4), "bf16": (1.0, 2e-3)}
"""Time and relative error of made-up modes."""


def made_up(mode: str, shape: Shape, ns: float, error: float) -> PrecisionResult:
    return PrecisionResult(
        mode=mode,
        shape=shape,
        kernel=f"made/{mode}",
        samples_ns=(ns, ns, 100 * ns),
        conversion_ns=0.0 if mode == "fp32" else 3.0,
        call_ns=1000.0,
        relative_error=error,
        largest_error=2 * error,
        share_of_bound=0.1,
        device_bytes=300,
        uploaded=200,
        downloaded=100,
        launches=1 if mode == "fp32" else 3,
    )


def measured(shapes: Sequence[Shape], seed: int) -> Precisions:
    results = (made_up(mode, shape, ns, error) for shape in shapes for mode, (ns, error) in MODES.items())
    return Precisions("A made-up GPU", tuple(results))


def absent(shapes: Sequence[Shape], seed: int) -> Precisions:
    raise DeviceUnavailableError("no GPU here", next_step="put one in")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """run(*arguments, measures=...): the command with a provider that measures so."""
    installed = providers.load()

    def call(*arguments: str, measures: Any = measured) -> Result:
        changed = {name: replace(each, precisions=measures) for name, each in installed.providers.items()}
        monkeypatch.setattr(installed, "providers", changed)
        monkeypatch.setattr(providers, "load", lambda: installed)
        return CliRunner().invoke(app, ["precision", *arguments, "--out", str(tmp_path)])

    return call


@pytest.mark.parametrize(
    ("error", "mode", "status"), [(None, "bf16", PASSED), ("1e-3", "fp16", PASSED), ("1e-9", "no mode", FAILED)]
)
def test_the_fastest_that_is_exact_enough_is_picked(
    run: Any, tmp_path: Path, error: Any, mode: str, status: int
) -> None:
    result = run("64x32x16", *(["--error", error] if error else []))
    assert result.exit_code == status
    assert f"64x32x16: {mode}" in result.stdout
    (path,) = (tmp_path / "precision").iterdir()
    table = PrecisionTable.model_validate_json(path.read_text())
    assert table.chosen == {"64x32x16": None if mode == "no mode" else mode}
    assert [each.mode for each in table.results] == list(MODES)
    assert table.error == (None if error is None else float(error))


def test_standard_output_is_json_alone_where_asked_for(run: Any) -> None:
    result = run("64x32x16", "8x8x8", "--json")
    assert set(json.loads(result.stdout)["chosen"]) == {"64x32x16", "8x8x8"}


@pytest.mark.parametrize("text", ["64x32", "64x32x0", "axbxc", "64x-1x3", "1x2x3x4"])
def test_what_is_no_product_is_refused(run: Any, text: str) -> None:
    result = run("--", text) if text.startswith("-") else run(text)
    assert isinstance(result.exception, UsageError)
    assert text in str(result.exception)


def test_a_missing_gpu_is_said(run: Any) -> None:
    result = run("8x8x8", measures=absent)
    assert result.exit_code == UNAVAILABLE
    assert "no GPU here" in result.stderr


@given(
    st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-9, 1.0)), min_size=1, max_size=6), st.none() | st.floats(0, 1)
)
def test_no_admitted_mode_is_faster_than_the_one_picked(modes: list[tuple[float, float]], error: float | None) -> None:
    results = [made_up(str(number), (2, 2, 2), *each) for number, each in enumerate(modes)]
    picked = fastest(results, error)["2x2x2"]
    admitted = {each.mode: each.product_ns for each in results if error is None or each.relative_error <= error}
    assert (picked is None) == (not admitted)
    assert picked is None or admitted[picked] == min(admitted.values())


def test_totals_of_each_mode(run: Any, tmp_path: Path) -> None:
    result = run("64x32x16", "128x32x16", "--json")
    table = PrecisionTable.model_validate_json(result.stdout)
    assert [each.mode for each in table.totals] == list(MODES)
    for total in table.totals:
        ns, _ = MODES[total.mode]
        fp32 = total.mode == "fp32"
        assert (total.shapes, total.product_ns, total.call_ns) == (2, 2 * ns, 2000.0)
        assert (total.conversion_ns, total.launches) == ((0.0, 2) if fp32 else (6.0, 6))
        assert (total.device_bytes, total.uploaded, total.downloaded) == (300, 400, 200)
    shown = run("64x32x16", "128x32x16").stdout
    assert shown.count("all 2") == len(MODES)
    assert "all 1" not in run("64x32x16").stdout, "one shape is its own total"


@given(st.lists(st.tuples(st.sampled_from(sorted(MODES)), st.integers(1, 3), st.floats(1, 1e6)), max_size=9))
def test_totals_add_up(given_: list[tuple[str, int, float]]) -> None:
    results = [made_up(mode, (M, 2, 2), ns, 0.0) for mode, M, ns in given_]
    found = totals(results)
    assert {each.mode for each in found} == {each.mode for each in results}
    assert sum(each.product_ns for each in found) == pytest.approx(sum(each.product_ns for each in results))
    assert sum(each.uploaded for each in found) == 200 * len(results)
    earlier = PrecisionTable(created="", tritmark="", device="", seed=0, error=None, results=(), chosen={})
    assert earlier.totals == ()
