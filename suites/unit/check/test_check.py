"""`tritmark.check` and `tritmark check --json=verdict`: one verdict, the smallest failing input, and its replay."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import tritmark
from tritmark.harness.candidate import kernel
from tritmark.harness.check import CheckVerdict
from tritmark.harness.check.inputs_file import KeptInput, read, write
from tritmark.harness.cli.check import check
from tritmark.harness.cli.once import Once
from tritmark.harness.cli.schema import schema
from tritmark.harness.errors import UsageError
from tritmark.harness.measure import ceilings
from tritmark.harness.record import Status
from tritmark.harness.spec import Workload
from tritmark.harness.validate.cases import Material
from tritmark.kernels import OPS

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"
SUITE = """\
title = "a few"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 300 }]
families = ["normal", "ties"]
[[workloads]]
op = "i2s_dequantize"
shapes = [{ n = 300 }]
families = ["uniform"]
"""
app = typer.Typer()
app.command("check", cls=Once)(check)
app.command("schema", cls=Once)(schema)
RUNNER = CliRunner()


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("TRITMARK_FORCE_ISA", raising=False)
        patch.setattr(ceilings, "measure_ceilings", lambda device: pytest.fail("ceilings were measured"))
        yield


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "few.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


@kernel(op="i2s_dequantize", dtype="float32")
def wrong_beyond_40(q, scale, x):  # type: ignore[no-untyped-def]
    with np.errstate(over="ignore"):
        np.multiply(q, np.float32(scale), out=x, dtype=np.float32)
    if len(q) > 40:
        x[40] = 7


def right(q, scale, x):  # type: ignore[no-untyped-def]
    with np.errstate(over="ignore"):
        np.multiply(q, np.float32(scale), out=x, dtype=np.float32)


def test_a_wrong_function_gets_its_smallest_failing_input_which_replays(suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    found = tritmark.check(wrong_beyond_40, dimension="accuracy", suite=suite, out=out, seed=5)
    assert not found
    assert (found.code, found.status, found.guard, found.seed) == ("accuracy.values", Status.FAIL, "values", 5)
    assert found.kernel.dimensions["performance"].status is Status.NOT_RUN
    assert found.first is not None
    assert (found.first.output, found.first.index, found.first.found) == ("x", (40,), "7.0")
    assert set(found.first.inputs) == {"q[40]", "scale"}
    assert found.failing is not None
    assert found.failing.axes == {"n": 41}, "one element fewer passes"
    # The command judges the file that was written, on this input alone.
    words = shlex.split(found.failing.command)
    done = RUNNER.invoke(app, [*words[1:], "--json=verdict"])
    assert done.exit_code == 1, done.output
    again = CheckVerdict.model_validate_json(done.stdout)
    assert (again.code, again.first and again.first.index) == ("accuracy.values", (40,))
    # A corrected kernel passes on the same input.
    fixed = tritmark.check(right, op="i2s_dequantize", dtype="float32", inputs=found.failing.file, out=out)
    assert (fixed.code, bool(fixed)) == ("pass", True)
    for shown in (str(found), found._repr_html_()):
        assert all(text in shown for text in ("accuracy.values", "x[40] is 7.0", "n=41"))


@kernel(op="i2s_dequantize", dtype="float32")
def wrong_from_300(q, scale, x):  # type: ignore[no-untyped-def]
    with np.errstate(over="ignore"):
        np.multiply(q, np.float32(scale), out=x, dtype=np.float32)
    if len(q) >= 300:
        x[-1] = 7


def test_a_drawn_case_that_failed_is_drawn_again_and_made_smaller(tmp_path: Path) -> None:
    suite = tmp_path / "drawn.toml"
    suite.write_text('title = "drawn"\n[[workloads]]\nop = "i2s_dequantize"\ndrawn = 8\n', encoding="utf-8")
    found = tritmark.check(wrong_from_300, dimension="accuracy", suite=suite, out=tmp_path / "results", seed=7)
    assert found.code == "accuracy.values"
    assert found.failing is not None
    assert found.failing.axes == {"n": 300}, "no small size fails, so the search begins at the case"


def test_the_command_prints_the_verdict_alone(suite: Path, tmp_path: Path) -> None:
    arguments = [str(EXAMPLES / "numpy_dequantize.py"), "--suite", str(suite), "--out", str(tmp_path / "results")]
    done = RUNNER.invoke(app, ["check", *arguments, "--dimension", "accuracy", "--json=verdict"])
    assert done.exit_code == 0, done.output
    found = CheckVerdict.model_validate_json(done.stdout)
    assert (found.passed, found.code, found.failing, found.score) == (True, "pass", None, None)
    assert Path(found.record).is_file()
    known = json.loads(RUNNER.invoke(app, ["schema", "verdict"]).stdout)
    assert set(known["required"]) <= set(json.loads(done.stdout)) <= set(known["properties"])


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_bare_json_still_prints_the_record_and_does_not_take_the_file(suite: Path, tmp_path: Path) -> None:
    file = str(EXAMPLES / "quantize.c")
    done = RUNNER.invoke(
        app, ["check", "--json", file, "--suite", str(suite), "--out", str(tmp_path), "--dimension", "accuracy"]
    )
    assert done.exit_code == 0, done.output
    assert "digest" in json.loads(done.stdout)
    assert RUNNER.invoke(app, ["check", file, "--json=verdicts"]).exit_code == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"dimension": "speed"}, "dimension is 'speed'; .*legal: accuracy"),
        ({"dimension": ()}, "dimension is empty"),
        ({"dtype": "float32"}, "dtype and format describe a function"),
        ({"inputs": "none.npz"}, "none.npz: no such file; legal: a .npz that"),
    ],
)
def test_what_is_not_valid_is_told(more: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        tritmark.check(EXAMPLES / "numpy_dequantize.py", out=tmp_path, **more)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_inputs_of_every_op_come_back_from_a_file(op: Any, tmp_path: Path) -> None:
    from tritmark.harness.providers import load

    key = load().keys(op.name)[0]
    axes = dict.fromkeys(op.axes, 128)
    case = Material(op, Workload(op=op.name, axes=axes, family=op.input_families[0]), 3).cases(key).first
    about = KeptInput(kernel=f"{key}/mine", axes=axes, family="uniform", layout="aligned", threads=2, seed=3)
    path = tmp_path / "in.npz"
    write(path, about, case)
    told, inputs = read(path)
    assert told == about
    assert set(inputs) == set(case.logical)
    for name, value in case.logical.items():
        kept, given = np.asarray(inputs[name]), np.asarray(value)
        assert (kept.dtype, kept.shape, kept.tobytes()) == (given.dtype, given.shape, given.tobytes())


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_a_damaged_file_is_told(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="cannot be read"):
        read(path)
