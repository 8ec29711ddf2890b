"""asv's benchmarks (suites/history): they cover each kernel, refuse another machine, and skip what a commit lacks."""

from __future__ import annotations

import importlib
import json
import platform
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("asv_runner", reason="the history extra is not installed")

from asv_runner.benchmarks.mark import SkipNotImplemented

from tritmark.harness.providers import load
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import ISAS

SUITES = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The package as asv's fork server imports it, with a home without files of asv."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("OMP_PROC_BIND", "true")
        patch.syspath_prepend(str(SUITES))
        names = ("isas", "shapes", "cases", "ceiling", "machine", "quantize", "matmul", "tracked", "anchor")
        yield {name: importlib.import_module(f"history.{name}") for name in names}
        for name in [name for name in sys.modules if name.split(".")[0] == "history"]:
            del sys.modules[name]


def test_the_instruction_sets_are_those_of_this_checkout(suite):
    assert list(suite["isas"].ISAS) == list(ISAS)


def test_every_variant_of_every_op_is_timed(suite):
    timed = set()
    for each in (suite[room].__dict__[kind] for room in ("quantize", "matmul") for kind in ("Cpu", "Cuda")):
        assert len(each.params) == len(each.param_names) == 3
        timed |= set(product(each.params[0], each.params[1]))
    has = {(f"{v.key.op}/{v.key.format}/{v.key.dtype}", f"{v.key.device}:{v.name}") for v in PROVIDER.variants}
    assert has - timed == set()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_anchor_is_measured_at_the_same_shapes(suite, device):
    key, shapes = suite["anchor"].key, suite["shapes"]
    classes = {"cpu": ("Quantize", "Matmul"), "cuda": ("QuantizeCuda", "MatmulCuda")}[device]
    wanted = {}
    for ops, variants, at in (getattr(suite["anchor"], name).params for name in classes):
        for op, variant, one in product(ops, variants, at):
            shape = shapes.vector_shape(op, one) if isinstance(one, int) else one
            wanted[
                key(op, variant, {axis: int(size) for axis, _, size in (word.partition("=") for word in shape.split())})
            ] = op
    measured = set()
    for item in load().suite(str(suite["anchor"].SUITES[device])).selected:
        for v in PROVIDER.variants:
            if (
                v.key.op == item.workload.op
                and v.key.device == device
                and item.admits(v.key.format, v.key.dtype, device)
            ):
                assert item.workload.measure
                measured.add(key(f"{v.key.op}/{v.key.format}/{v.key.dtype}", f"{device}:{v.name}", item.workload.axes))
    assert measured - set(wanted) == set()
    assert {wanted[each] for each in measured} == set(wanted.values())


def test_a_gates_ratios_are_read(suite):
    each = {"op": "o", "format": "f", "dtype": "d", "device": "cpu", "variant": "v", "identical": False, "ratio": None}
    benchmarks = [
        each | {"axes": {"N": 2, "M": 1}, "ratio": {"median": 1.25}},
        each | {"axes": {"n": 3}, "identical": True},
        each | {"axes": {"n": 4}},
    ]
    found = suite["anchor"].told({"benchmarks": benchmarks})
    assert found == {"o/f/d cpu:v M=1 N=2": 1.25, "o/f/d cpu:v n=3": 1.0}


def test_without_a_commits_build_nothing_is_compared(suite, monkeypatch):
    monkeypatch.setenv("ASV_COMMIT", "0" * 40)
    monkeypatch.setenv("ASV_ENV_TYPE", "existing")
    assert suite["anchor"].ratios() == {}
    with pytest.raises(SkipNotImplemented):
        suite["anchor"].Quantize().setup({}, "i2s_quantize/none/int8", "cpu:scalar", 65536)


def test_a_clone_without_the_anchor_says_what_to_do(suite, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(RuntimeError, match="git fetch --unshallow"):
        suite["anchor"].require_anchor(tmp_path)


@pytest.mark.parametrize(
    ("op", "variant", "shape"), [("none/none/int8", "cpu:scalar", "n=5"), ("i2s_quantize/none/int8", "cpu:neon", "n=5")]
)
def test_what_a_commit_lacks_is_skipped(suite, op, variant, shape):
    with pytest.raises(SkipNotImplemented, match="this commit has no"):
        suite["cases"].Bound(op, variant, shape)


def test_what_this_machine_cannot_run_is_skipped(suite):
    device = next(each for each in PROVIDER.devices if each.type == "cuda")
    if device.missing() is None:
        pytest.skip("this machine runs CUDA kernels")
    with pytest.raises(SkipNotImplemented):
        suite["cases"].Bound("i2s_quantize/none/int8", "cuda:v1", "n=5")


def test_tracked_figures(suite):
    tracked = suite["tracked"]
    assert tracked.ExactnessOfQuantize().track_mismatches("i2s_quantize/none/int8", "cpu:scalar") == 0
    assert tracked.ExactnessOfMatmul().track_mismatches("ternary_matmul/tile64/bfloat16", "cpu:scalar") == 0
    for op in tracked.Weights.params[0]:
        assert tracked.Weights().track_bits_per_weight(op, "cpu:scalar") == pytest.approx(2, abs=0.05)


def test_a_wrong_element_is_counted(suite):
    bound = suite["cases"].Bound("i2s_quantize/none/int8", "cpu:scalar", "n=1000")
    right = bound.launch

    class Wrong:
        def run(self):
            right.run()
            bound.outputs["q"][[3, 700]] ^= 1

    bound.launch = Wrong()
    assert bound.mismatches() == 2


def test_a_ceiling_is_a_share(suite, monkeypatch):
    monkeypatch.setattr(suite["ceiling"], "BUDGET_NS", 1)
    found = suite["ceiling"].percent_of_ceiling(suite["cases"].Bound("i2s_quantize/none/int8", "cpu:scalar", "n=65536"))
    assert np.isfinite(found)
    assert found > 0


def test_another_cpu_is_refused(suite, tmp_path):
    machine = suite["machine"]
    file = tmp_path / "asv.json"
    right = machine.here() | {"machine": "right"}
    machine.refuse_another(file, tmp_path)
    file.write_text(json.dumps({"version": 1, platform.node(): right}))
    machine.refuse_another(file, tmp_path)
    for key in machine.here():
        file.write_text(json.dumps({"version": 1, "elsewhere": right | {key: "other"}}))
        with pytest.raises(machine.AnotherMachineError, match=key):
            machine.refuse_another(file, tmp_path)
    file.write_text(json.dumps({"version": 1, "here": right}))
    (tmp_path / "right").mkdir()
    (tmp_path / "right" / "machine.json").write_text(json.dumps(right | {"cpu": "other"}))
    with pytest.raises(machine.AnotherMachineError, match="never compared"):
        machine.refuse_another(file, tmp_path)
    file.write_text("{")
    with pytest.raises(machine.AnotherMachineError, match="no JSON"):
        machine.refuse_another(file, tmp_path)
