"""`tritmark check` and `tritmark new`, on the examples of the repository and on every template."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tritmark.harness import providers
from tritmark.harness.candidate.new import KINDS, templates, write
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.candidate.plan import planned
from tritmark.harness.cli.check import check
from tritmark.harness.cli.new import new
from tritmark.harness.errors import TritmarkError, UsageError
from tritmark.harness.judge.judging import NOT_RIGHT, RIVAL_OF_NONE, LeftOut
from tritmark.harness.judge.request import Request
from tritmark.harness.judge.untimed import why_unmeasured
from tritmark.harness.measure import ceilings
from tritmark.harness.providers import VARIANTS, load
from tritmark.harness.record import Record, Status
from tritmark.harness.spec import Tier, Variant
from tritmark.harness.validate.drawn import judge_drawn

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]

INSTALLED = load()
QUICK = INSTALLED.suite("quick")
EXAMPLES = Path(__file__).parents[2] / "examples"
RUNNER = CliRunner()
PYTHON = "torch_dequantize.py" if find_spec("torch") else "numpy_dequantize.py"
SUITE = """\
title = "a few"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 1 }, { n = 300 }]
families = ["normal", "ties"]
layouts = ["aligned", "unaligned"]
[[workloads]]
op = "i2s_dequantize"
shapes = [{ n = 300 }]
families = ["uniform", "extremes"]
"""

app = typer.Typer()
app.command()(check)
app.command()(new)


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("TRITMARK_FORCE_ISA", raising=False)
        yield


def run(file: Path, folder: Path, *more: str) -> tuple[int, str, BaseException | None]:
    suite = folder / "few.toml"
    suite.write_text(SUITE, encoding="utf-8")
    found = RUNNER.invoke(app, ["check", str(file), "--suite", str(suite), "--out", str(folder / "results"), *more])
    return found.exit_code, found.output, found.exception


def record(folder: Path) -> Record:
    (path,) = (folder / "results" / "runs").glob("*.json")
    return Record.model_validate_json(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "ran"), [("quantize.c", 8), (PYTHON, 2)])
def test_an_example_passes(tmp_path: Path, name: str, ran: int) -> None:
    status, output, error = run(EXAMPLES / name, tmp_path)
    assert status == 0, (output, error)
    found = record(tmp_path)
    kernels = {each.kernel for each in found.runs}
    assert len(kernels) == 2, "the candidate and a built-in one"
    mine = [each for each in found.runs if Path(name).stem in each.variant]
    assert len(mine) == ran
    assert all(each.accuracy.status is Status.PASS for each in mine)
    hashes = {each.receipt.code_hash for each in mine if each.receipt is not None}
    assert len(hashes) == 1
    assert f"accuracy     PASS {ran} Runs" in output
    assert "1 of 1 kernel is correct" in output, "the built-in one is not counted"
    assert "beside the built-in cpu/" in output
    assert "Report:" in output


def test_the_example_for_a_gpu_passes_in_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    status, output, error = run(EXAMPLES / "quantize_cuda.cu", tmp_path, "--in-process")
    assert status == 0, (output, error)
    kernel = next(each.kernel for each in record(tmp_path).runs if "quantize_cuda" in each.variant)
    assert f"{kernel} (simulated)" in " ".join(output.split())
    assert all(
        each.receipt is not None and each.receipt.simulated
        for each in record(tmp_path).runs
        if "quantize_cuda" in each.variant
    )


def test_the_wrong_example_fails_and_is_told_why(tmp_path: Path) -> None:
    status, output, _ = run(EXAMPLES / "wrong_rounding.c", tmp_path)
    assert status == 1
    reasons = {each.accuracy.reason for each in record(tmp_path).runs if each.accuracy.failed}
    assert any("expected 0" in reason for reason in reasons)
    assert all(output.count(reason) <= 1 for reason in reasons)
    first = (
        r"FAIL: wrong_rounding\.quantize: q\[\d+\] is -?1, expected 0 \(x\[\d+\] = \S+, scale = \S+\)\. 0 of 1 kernel"
    )
    assert re.search(first, " ".join(output.split())), output
    by = {
        each.workload.family: each.accuracy.status for each in record(tmp_path).runs if "wrong_rounding" in each.variant
    }
    assert by["ties"] is Status.FAIL
    others = [each for each in record(tmp_path).runs if "wrong_rounding" not in each.variant]
    assert others
    assert all(each.accuracy.status is not Status.FAIL for each in others)


@pytest.mark.nightly
def test_a_kernel_found_wrong_is_not_timed_nor_is_its_rival_nor_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: pytest.fail("ceilings were measured"))
    suite = tmp_path / "measured.toml"
    suite.write_text(SUITE.replace("shapes", "measure = true\nshapes", 1), encoding="utf-8")
    arguments = ["check", str(EXAMPLES / "wrong_rounding.c"), "--suite", str(suite), "--out", str(tmp_path / "results")]
    assert RUNNER.invoke(app, arguments).exit_code == 1
    found = record(tmp_path).runs
    assert {each.performance.status for each in found} == {Status.NOT_RUN}
    rivals = [each for each in found if "wrong_rounding" not in each.variant]
    assert {each.performance.reason for each in rivals} == {RIVAL_OF_NONE.reason}
    assert {each.accuracy.status for each in rivals} == {Status.PASS}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((), {"one": None, "two": None, "rival": None}),
        (("one",), {"one": NOT_RIGHT, "two": None, "rival": None}),
        (("one", "two"), {"one": NOT_RIGHT, "two": NOT_RIGHT, "rival": RIVAL_OF_NONE}),
        (("rival",), {"one": None, "two": None, "rival": NOT_RIGHT}),
    ],
)
def test_a_rival_is_timed_where_one_kernel_of_the_file_is_right(
    wrong: tuple[str, ...], told: dict[str, LeftOut | None]
) -> None:
    (first, *_) = (each for each in INSTALLED.registry.variants if each.key.op == "i2s_quantize")
    variants = {name: replace(first, name=name, tier=Tier.CANDIDATE) for name in ("one", "two", "rival")}
    other = replace(first, name="other", tier=Tier.CANDIDATE, key=replace(first.key, dtype="int16"))
    registry = SimpleNamespace(variants=[*variants.values(), other])
    installed: Any = SimpleNamespace(registry=registry)
    request = Request(
        suite=None,
        only=frozenset(each.id for each in registry.variants),
        rivals=frozenset({variants["rival"].id}),
    )
    fails = {variants[name].id for name in wrong}
    assert {name: why_unmeasured(each, request, installed, fails) for name, each in variants.items()} == told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--op", "ternary_*"), "match no kernel of the file; legal: i2s_quantize on cpu"),
        (("--device", "cuda"), "match no kernel of the file"),
        (("--resume", "20200101T000000Z-00000000"), "20200101T000000Z-00000000"),
    ],
)
def test_what_leaves_nothing_is_told(tmp_path: Path, more: tuple[str, ...], told: str) -> None:
    _, _, error = run(EXAMPLES / "quantize.c", tmp_path, *more)
    assert isinstance(error, TritmarkError)
    assert told in str(error)


def test_a_missing_device_is_status_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "driver")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if INSTALLED.registry.devices["cuda"].missing() is None:
        pytest.skip("a GPU is there")
    status, output, _ = run(EXAMPLES / "quantize_cuda.cu", tmp_path)
    assert status == 3
    assert "cuda is missing" in output


def test_a_kernel_without_workloads_is_told(tmp_path: Path) -> None:
    (path,) = write(INSTALLED, "float_widen", "py", tmp_path)
    _, _, error = run(path, tmp_path)
    assert isinstance(error, UsageError)
    assert "no workloads of float_widen" in str(error)


# --- tritmark new
# ----------------------------------------------------------------------------------------------------------------------

TEMPLATES = [(op, kind) for op in INSTALLED.ops for kind in templates(INSTALLED, op)]


def test_every_op_has_a_template() -> None:
    assert {op for op, kind in TEMPLATES if kind == "py"} == set(INSTALLED.ops)
    products = {"ternary_matmul", "ternary_matmul_experts"}
    quantizers = {op for op in INSTALLED.ops if op.endswith("quantize")}
    assert {op for op, kind in TEMPLATES if kind == "c"} == quantizers | {"hadamard_transform", *products}
    assert {op for op, kind in TEMPLATES if kind == "cu"} == {"i2s_quantize", *products}


@pytest.mark.parametrize(("op", "kind"), TEMPLATES)
def test_a_template_is_right_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, kind: str) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    paths = write(INSTALLED, op, kind, tmp_path)
    manifests = [path for path in paths if path.suffix == ".toml"]
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 10 for path in manifests)
    (variant,) = open_candidate(paths[0]).variants(INSTALLED)
    device = INSTALLED.registry.devices[variant.key.device]
    own = device if device.memory is not None else None
    # The simulator is slow.
    count = 8 if kind == "cu" else 40
    with np.errstate(all="ignore"):  # NumPy's warnings about overflow concern the caller of the template
        found = judge_drawn(
            INSTALLED.ops[op], variant, variant.key, corners=(), count=count, seed=0, cores=2, device=own
        ).accuracy
    assert (found.status, found.reason) == (Status.PASS, "")
    assert found.cases >= 2 * count
    assert not found.uncovered


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for there in ("my_i2s_quantize.c", "my_i2s_quantize.toml"):
        folder = tmp_path / there
        folder.mkdir()
        (folder / there).write_text("mine", encoding="utf-8")
        with pytest.raises(UsageError, match="nothing is overwritten"):
            write(INSTALLED, "i2s_quantize", "c", folder)
        assert [path.name for path in folder.iterdir()] == [there]
        assert (folder / there).read_text(encoding="utf-8") == "mine"
    (tmp_path / "my_i2s_quantize.py").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        write(INSTALLED, "i2s_quantize", "py", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_template_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown op 'i2s_quantise'; did you mean 'i2s_quantize'"):
        write(INSTALLED, "i2s_quantise", "py", tmp_path)
    with pytest.raises(UsageError, match="no template of kind 'cu' for float_widen; legal: py"):
        write(INSTALLED, "float_widen", "cu", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        write(INSTALLED, "float_widen", "py", tmp_path / "file")
    assert set(KINDS) == {kind for _, kind in TEMPLATES}


def test_the_command_says_what_to_do_next(tmp_path: Path) -> None:
    found = RUNNER.invoke(app, ["new", "i2s_quantize", "--kind", "c", "--out", str(tmp_path)])
    assert found.exit_code == 0
    assert f"tritmark check {tmp_path / 'my_i2s_quantize.c'}" in found.output


# --- third-party packages
# ----------------------------------------------------------------------------------------------------------------------


def _mine() -> list[Variant]:
    variant = next(each for each in INSTALLED.registry.variants if each.key.device == "cpu")
    from dataclasses import replace

    return [replace(variant, name="of-another-package", rank=variant.rank - 1)]


LIST = _mine()
CLASHING = [INSTALLED.registry.variants[0]]


def _points(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    real = providers.entry_points
    found = [EntryPoint(f"p{nth}", value, VARIANTS) for nth, value in enumerate(values)]
    monkeypatch.setattr(providers, "entry_points", lambda group: found if group == VARIANTS else real(group=group))


@pytest.mark.parametrize("name", ["LIST", "_mine"])
def test_variants_of_other_packages_are_registered(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _points(monkeypatch, f"{__name__}:{name}")
    assert any(variant.name == "of-another-package" for variant in load().registry.variants)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            "no_such_module:x",
            "entry point 'p0' of tritmark.variants (no_such_module:x) is left out: ModuleNotFoundError",
        ),
        ("json:dumps", "is left out: TypeError"),
        ("json:__name__", "gives 'json'; legal: a sequence of tritmark.harness.spec.Variant"),
        (f"{__name__}:CLASHING", "is registered already"),
    ],
)
def test_variants_that_cannot_be_taken_are_told_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, value: str, told: str
) -> None:
    _points(monkeypatch, value, f"{__name__}:LIST")
    installed = load()
    (problem,) = installed.problems
    assert told in str(problem)
    assert problem.traceback.startswith("Traceback")
    assert any(variant.name == "of-another-package" for variant in installed.registry.variants)


# --- some dimensions, and --strict
# ----------------------------------------------------------------------------------------------------------------------


def test_accuracy_alone_measures_nothing_and_needs_no_rival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: pytest.fail("ceilings were measured"))
    suite = tmp_path / "measured.toml"
    suite.write_text(SUITE.replace('op = "i2s_q', 'measure = true\nop = "i2s_q'), encoding="utf-8")
    arguments = ["check", str(EXAMPLES / "quantize.c"), "--suite", str(suite), "--out", str(tmp_path / "results")]
    found = RUNNER.invoke(app, [*arguments, "--dimension", "accuracy", "--strict"])
    assert found.exit_code == 0, (found.output, found.exception)
    runs = record(tmp_path).runs
    assert {each.variant for each in runs} == {"quantize.quantize"}
    for each in runs:
        assert each.accuracy.status is Status.PASS
        for name in ("performance", "memory", "cross"):
            assert each.verdict(name).reason == "not requested: --dimension accuracy"


def test_what_is_not_accuracy_is_judged_where_something_is_measured() -> None:
    mine = [variant for variant in INSTALLED.registry.variants if variant.id == "cpu/i2s_quantize/none/int8/scalar"]
    memory = planned(INSTALLED, mine, QUICK, dimensions=frozenset({"memory"}))
    assert memory.rivals == ()
    assert memory.suite.selected
    assert all(each.workload.measure for each in memory.suite.selected)
    assert planned(INSTALLED, mine, QUICK).rivals


def test_a_dimension_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    assert run(EXAMPLES / "quantize.c", tmp_path, "--dimension", "speed")[0] == 2
