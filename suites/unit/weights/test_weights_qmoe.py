"""Experts of QMoE in .onnx files: read, listed as not ternary, or refused with the choice of the layout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.compare import compare
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.scales import by_row

onnx = pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families, described = import_module("model_families"), import_module("described_layouts")
HOLDERS = holders_of(installed())
CODES, SCALES = families.ternary("qmoe", (3, 128, 256), 128)


def read(path: Path, layout: str = "") -> tuple[Any, Any]:
    """Codes (E, N, K) and scales (E, N, groups)."""
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS, Conventions(layout=layout))
        weights.require_finite()
        (info,) = weights.matrices
        read = [weights.read(info, expert) for expert in info.expert_numbers]
        return np.stack([each for each, _ in read]), np.stack([by_row(scale, info.shape) for _, scale in read])


def one(path: Path, block_size: int = 128, **options: Any) -> Path:
    """A model with one layer of experts."""
    groups = 256 // block_size if block_size else 1
    scales = np.repeat(SCALES, max(groups // 2, 1), axis=2)[..., :groups]
    return Path(families.qmoe_model(path, {"w": (CODES, scales)}, block_size, **options))


@pytest.mark.parametrize("points", [True, False])
@pytest.mark.parametrize("block_size", [0, 16, 64, 128, 256])
def test_experts_with_stated_layout(tmp_path: Path, block_size: int, points: bool) -> None:
    codes, scales = read(one(tmp_path / "m.onnx", block_size, points=points, weights_prepacked=0))
    np.testing.assert_array_equal(codes, CODES, strict=True)
    groups = 256 // block_size if block_size else 1
    expected = np.repeat(SCALES, max(groups // 2, 1), axis=2)[..., :groups]
    np.testing.assert_array_equal(np.repeat(scales, 256 // scales.shape[2], 2), np.repeat(expected, 256 // groups, 2))


def sm80(codes: Any, added: int) -> Any:
    """Each expert in the order of CUDA kernels, in the shape (E, K, N / 4) that its packers write."""
    E, N, K = codes.shape
    return np.stack([described.prepacked(each, added) for each in codes]).reshape(E, K, N // 4)


@pytest.mark.parametrize("layout", ["plain", "sm80"])
def test_a_layout_that_nothing_states_is_the_users_choice(tmp_path: Path, layout: str) -> None:
    stored: dict[str, Any] = {"stored": sm80} if layout == "sm80" else {}
    path = one(tmp_path / "m.onnx", **stored)
    with pytest.raises(WeightFileError, match=r"without weights_prepacked.*--layout plain .* or sm80"):
        read(path)
    np.testing.assert_array_equal(read(path, layout)[0], CODES, strict=True)


def test_the_choice_is_refused_where_the_model_states_the_layout(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no tensor with several layouts"):
        read(one(tmp_path / "m.onnx", weights_prepacked=0), "sm80")


NOT_TERNARY: dict[str, tuple[dict[str, Any], str]] = {
    "4 bits": ({"expert_weight_bits": 4}, "QMoE, 4 bits"),
    "floats of 4 bits": ({"quant_type": "fp4"}, "quant_type 'fp4'"),
    "of a provider": ({"weights_prepacked": 1}, "weights_prepacked 1: a layout of its execution provider"),
    "offset": ({"zero_point_offset": 0.5}, "zero_point_offset"),
}


@pytest.mark.parametrize("what", NOT_TERNARY)
def test_other_experts_are_listed(tmp_path: Path, what: str) -> None:
    attributes, told = NOT_TERNARY[what]
    with open_weights(one(tmp_path / "m.onnx", **{"weights_prepacked": 0, **attributes})) as source:
        weights = TernaryWeights(source, HOLDERS)
        assert weights.matrices == ()
        assert told in weights.not_ternary["w"]


def changed(path: Path, change: Callable[[Any], object]) -> Path:
    model = onnx.load(str(path))
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def initializer(name: str, value: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        stored = next(each for each in model.graph.initializer if each.name == name)
        stored.CopyFrom(onnx.numpy_helper.from_array(value, name))

    return change


def attribute(name: str, value: int) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        next(each for each in model.graph.node[0].attribute if each.name == name).i = value

    return change


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "no experts": (initializer("w", np.zeros((128, 64), np.uint8)), "uint8 (E, N, K / 4)"),
    "other scales": (initializer("w_scales", np.ones((3, 128, 3), np.float32)), "float32 of shape (3, 128, 3)"),
    "scales of rows": (initializer("w_scales", np.ones((3, 128), np.float32)), "float32 of shape (3, 128)"),
    "a NaN scale": (initializer("w_scales", np.full((3, 128, 2), np.nan, np.float32)), "nan at [0, 0, 0]"),
    "points of rows": (initializer("w_zero_points", np.full((3, 32), 0x55, np.uint8)), "uint8 of shape (3, 32)"),
    "field 3": (initializer("w", np.full((3, 128, 64), 0xFF, np.uint8)), "field 3 with zero point 1 at (0, 0)"),
    "computed scales": (lambda model: model.graph.node[0].input.__setitem__(3, "x"), "no initializer"),
    "a block of 100": (attribute("block_size", 100), "K 256 in blocks of 100"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_experts_that_contradict_the_node_are_refused(tmp_path: Path, what: str) -> None:
    change, told = REFUSED[what]
    path = changed(one(tmp_path / "m.onnx", weights_prepacked=0), change)
    with pytest.raises(WeightFileError) as caught:
        read(path)
    assert told in str(caught.value)


def test_other_zero_points_are_not_ternary(tmp_path: Path) -> None:
    points = np.full((3, 128, 1), 0x55, np.uint8)
    points[2, 127, 0] = 0x57  # 3 for the first block of the last row
    path = changed(one(tmp_path / "m.onnx", weights_prepacked=0), initializer("w_zero_points", points))
    with open_weights(path) as source:
        assert "zero point 3" in TernaryWeights(source, HOLDERS).not_ternary["w"]


def test_experts_are_converted_exactly(tmp_path: Path) -> None:
    path = one(tmp_path / "m.onnx", weights_prepacked=0)
    convert(path, tmp_path / "out.gguf", "pq2_0", HOLDERS)
    assert compare(path, tmp_path / "out.gguf", HOLDERS).differences == ()


@pytest.mark.parametrize("block_size", [0, 32])
@pytest.mark.parametrize("points", [True, False])
def test_onnx_runtime_reads_the_same_experts(tmp_path: Path, block_size: int, points: bool) -> None:
    """One-hot rows through an expert and an identity give the columns of the expert."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; tox -e peers has it")
    K, N = 64, 32
    codes, scales = families.ternary("ort", (2, N, K), block_size or K)
    wide = np.zeros((2, K, N), np.int8)  # the second layer gives the N results of the first, and zeros
    wide[:, :N] = np.eye(N, dtype=np.int8)
    ones = np.ones((2, K, N // (block_size or N)), np.float32)
    layers = {"w": (codes, scales), "identity": (wide, ones)}
    path = families.qmoe_model(tmp_path / "m.onnx", layers, block_size, points, k=1, activation_type="identity")

    def typed(model: Any) -> None:
        value, floats = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        model.graph.input.extend([value("x", floats, [K, K]), value("router", floats, [K, 2])])
        model.graph.output.append(value("y", floats, [K, K]))
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        model.ir_version = min(model.ir_version, 10)
        model.opset_import[0].version = 18

    session = runtime.InferenceSession(str(changed(path, typed)), providers=["CPUExecutionProvider"])
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS, Conventions(layout="plain"))
        info = weights.matrix("w")
        assert info is not None
        for expert in range(2):
            router = np.tile(np.array([[1 - expert, expert]], np.float32) * 8, (K, 1))
            (y,) = session.run(None, {"x": np.eye(K, dtype=np.float32), "router": router})
            found, scale = weights.read(info, expert)
            each = by_row(scale, info.shape)
            stored = found * np.repeat(each, K // each.shape[1], axis=1)
            np.testing.assert_array_equal(y[:, :N].T, stored)  # the router's softmax is over the one expert
