"""The product with each layer of a file: correct layers pass, incorrect weights are detected."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritmark.harness.judge import stored
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import Installed, installed
from tritmark.harness.record import Layer, Status
from tritmark.harness.spec import KernelKey, MaxSize, MinSize, MultipleOf
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.provider import evaluate_stored as evaluation
from tritmark.kernels.weights.packed import PackedWeights

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

sys.path.append(str(Path(__file__).parents[1] / "unit" / "helpers"))
models, families = map(import_module, ("made_up_models", "model_families"))
SMALL = models.SMALL


@pytest.fixture
def here() -> Installed:
    return installed()


def layers(path: Path, here: Installed, *devices: str) -> Iterator[Layer]:
    """Each layer judged on these devices, by default the CPU."""
    request = Request(suite=None, weights=str(path), threads=2, seed=3)
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(here))
        plan = stored.planned(here, request, weights, [here.registry.devices[each] for each in devices or ("cpu",)])
        for info in weights.matrices:
            yield stored.evaluated(here, request, weights, info, plan[info.name])


@pytest.mark.parametrize(
    ("write", "format", "computed_from"),
    [
        (lambda folder: models.write_gguf(folder / "m.gguf", SMALL), "i2_s_x86", {"i2_s_x86"}),
        (lambda folder: models.write_gguf(folder / "m.gguf", SMALL, 35), "tq2_0", {"tq2_0"}),
        (lambda folder: models.write_gguf(folder / "m.gguf", SMALL, 34), "tq1_0", {"tq1_0", "tq2_0"}),
        (lambda folder: models.write_safetensors(folder / "m.safetensors", SMALL), "hf_pack", {"hf_pack", "tile64"}),
    ],
)
def test_every_layer_of_a_sound_model_is_right(
    tmp_path: Path, here: Installed, write: Any, format: str, computed_from: set[str]
) -> None:
    path = write(tmp_path)
    found = list(layers(path, here))
    assert len(found) == 14
    assert {(layer.status, layer.reason, layer.format) for layer in found} == {(Status.PASS, "", format)}
    assert {layer.kernel.split("/")[2] for layer in found} <= computed_from
    for layer in found:
        (scheme,) = layer.schemes
        name = evaluation_name(layer.name)
        assert scheme.zeros == pytest.approx(np.mean(SMALL.codes(name, layer.shape) == 0), abs=1e-12)
        assert 0 <= scheme.largest_error <= 1
        assert len(layer.runs) == 2


FAMILIES = (
    *("bonsai, pq2_0", "bonsai, ptq1_0", "bonsai, old q2_0", "bonsai, mlx", "bonsai, onnx", "maple, hf", "maple, gguf"),
    *("maple, mlx", "bitcpm4", "compressed-tensors", "compressed-tensors, experts", "falcon-e"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_and_expert_of_a_family_is_right(tmp_path: Path, here: Installed, family: str) -> None:
    if "onnx" in family:
        pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
    made = families.FAMILIES[family](tmp_path)
    request = Request(suite=None, weights=str(made.path), threads=2, seed=3)
    with open_weights(made.path) as source:
        weights = TernaryWeights(source, holders_of(here))
        plan = stored.planned(here, request, weights, [here.registry.devices["cpu"]])
        assert plan
        for info in (each for each in weights.matrices if each.name in plan):
            layer = stored.evaluated(here, request, weights, info, plan[info.name])
            assert (layer.status, layer.reason) == (Status.PASS, "")
            (scheme,) = layer.schemes
            assert scheme.zeros == pytest.approx(np.mean(made.truth[info.name][0] == 0), abs=1e-12)
            assert layer.reads == made.reads.get(info.name, 1)
            assert layer.bytes == info.nbytes


def test_one_wrong_expert_is_caught(tmp_path: Path, here: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    made = families.FAMILIES["maple, gguf"](tmp_path)
    right = evaluation._packed

    def packed(weights: Any, info: Any, expert: int, format: str, codes: Any, scale: Any) -> PackedWeights:
        return right(weights, info, 0 if expert == 2 else expert, format, codes, scale)

    monkeypatch.setattr(evaluation, "_packed", packed)
    request = Request(suite=None, weights=str(made.path), threads=2, seed=3)
    with open_weights(made.path) as source:
        weights = TernaryWeights(source, holders_of(here))
        plan = stored.planned(here, request, weights, [here.registry.devices["cpu"]])
        info = weights.matrix("blk.0.ffn_up_exps.weight")
        assert info is not None
        layer = stored.evaluated(here, request, weights, info, plan[info.name])
    assert layer.status is Status.FAIL
    assert ", expert 2: row" in layer.reason


@pytest.mark.cuda
@pytest.mark.parametrize("devices", [("cuda",), ("cpu", "cuda")])
def test_layers_are_multiplied_on_the_gpu(
    tmp_path: Path, here: Installed, cuda: CudaContext, devices: tuple[str, ...]
) -> None:
    """From row16, with the kernels for one token and for a prompt; in the simulator only if there is no GPU."""
    path = models.write_gguf(tmp_path / "m.gguf", replace(SMALL, layers=1, ffn=256))
    for layer in layers(path, here, *devices):
        assert (layer.status, layer.reason) == (Status.PASS, "")
        kernels = layer.kernel.split(", ")
        there = [kernel for kernel in kernels if kernel.startswith("cuda/ternary_matmul/row16/float32/")]
        assert len(there) == (0 if cuda.backend.simulated and "cpu" in devices else 2)
        assert len(kernels) == len(there) + ("cpu" in devices)
        assert len(layer.runs) == 2 * len(devices)


@pytest.mark.cuda
@pytest.mark.parametrize(("kind", "format"), [(35, "tq2_0"), (models.IQ2_BN, "iq2_bn")])
def test_layers_with_several_scales_are_multiplied_on_the_gpu_from_their_own_bytes(
    tmp_path: Path, here: Installed, cuda: CudaContext, kind: int, format: str
) -> None:
    path = models.write_gguf(tmp_path / "m.gguf", replace(SMALL, layers=1, ffn=256), kind)
    for layer in layers(path, here, "cuda"):
        assert (layer.status, layer.reason) == (Status.PASS, "")
        variants = {(each.key.format, each.name) for each in here.registry.variants if each.id in layer.kernel}
        assert variants == {(format, "dp4a"), (format, "mma")}, layer.kernel


@pytest.mark.cuda
def test_a_wrong_product_on_the_gpu_is_caught(
    tmp_path: Path, here: Installed, cuda: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_packed", _swapped_code)
    path = models.write_gguf(tmp_path / "m.gguf", replace(SMALL, layers=1, ffn=256))
    assert {layer.status for layer in layers(path, here, "cuda")} == {Status.FAIL}


def test_a_kernel_gets_as_many_rows_as_it_takes(tmp_path: Path, here: Installed) -> None:
    variant = here.registry.select_best(
        KernelKey("cpu", "ternary_matmul", "tile64", "float32"), {"M": 1, "N": 64, "K": 64}
    )
    with open_weights(models.write_gguf(tmp_path / "m.gguf", SMALL)) as source:
        info = TernaryWeights(source, holders_of(here)).matrices[0]
    for constraints, rows in (((), 2), ((MaxSize("M", 1),), 1), ((MinSize("M", 9),), 9), ((MultipleOf("M", 16),), 16)):
        assert evaluation._rows(replace(variant, constraints=constraints), info) == rows


def evaluation_name(name: str) -> str:
    from tritmark.harness.weights.published_names import gguf_name

    return gguf_name(name).removesuffix(".weight")


def _swapped_code(
    weights: TernaryWeights, info: Any, expert: int, format: str, codes: Any, scale: Any
) -> PackedWeights:
    changed = codes.copy()
    changed[5, 100] = 1 if changed[5, 100] < 1 else -1
    return PackedWeights(FORMATS[format].pack(changed, scale), format, info.shape, scale)


def _wrong_scale(weights: TernaryWeights, info: Any, expert: int, format: str, codes: Any, scale: Any) -> PackedWeights:
    right = PackedWeights(FORMATS[format].pack(codes, scale), format, info.shape, scale)
    return replace(right, scale=np.float32(scale * 1.001))


@pytest.mark.parametrize("fault", [_swapped_code, _wrong_scale])
def test_wrong_weights_are_caught(tmp_path: Path, here: Installed, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    monkeypatch.setattr(evaluation, "_packed", fault)
    for layer in layers(models.write_gguf(tmp_path / "m.gguf", SMALL), here):
        assert layer.status is Status.FAIL
        assert layer.reason.startswith(layer.kernel)
        assert "of the weights gives" in layer.reason


def test_a_layer_that_cannot_be_read_is_an_error_and_the_rest_goes_on(tmp_path: Path, here: Installed) -> None:
    path = models.write_gguf(tmp_path / "m.gguf", SMALL)
    with open_weights(path) as source:
        tensor = source.tensor("blk.0.ffn_up.weight")
    assert tensor is not None
    with path.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(b"\xff")
    found = list(layers(path, here))
    assert [layer.name for layer in found if layer.status is Status.ERROR] == ["blk.0.ffn_up.weight"]
    assert [layer.status for layer in found].count(Status.PASS) == 13
    (reason,) = [layer.reason for layer in found if layer.reason]
    assert "field 3 for the weight at (0, 0)" in reason
