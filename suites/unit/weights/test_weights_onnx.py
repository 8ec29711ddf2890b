"""Weights of MatMulNBits in .onnx files: read, listed as not ternary, or refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.left_out import left_out

onnx = pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families, described = import_module("model_families"), import_module("described_layouts")
HOLDERS = holders_of(installed())
GOLDEN = Path(__file__).parents[2] / "golden"
NAME = "layer.MatMul.weight_Q2"
CODES, SCALES = families.ternary("onnx", (6, 256), 128)


def read(path: Path) -> tuple[Any, Any, TernaryWeights]:
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS)
        weights.require_finite()
        (info,) = weights.matrices
        return *weights.read(info), weights


def one(path: Path, change: Callable[[Any], object] = lambda model: None, **options: Any) -> Path:
    """A model with one product, after a change."""
    families.onnx_model(path, {NAME: (CODES, SCALES)}, **options)
    model = onnx.load(str(path), load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("points", ["packed", "float32", "float16", "absent"])
@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("block_size", [16, 64, 128])
def test_every_form_of_zero_points(tmp_path: Path, points: str, external: bool, block_size: int) -> None:
    scales = np.repeat(SCALES, 128 // block_size, axis=1)
    path = tmp_path / "m.onnx"
    families.onnx_model(path, {NAME: (CODES, scales)}, block_size, points, external)
    codes, scale, _ = read(path)
    np.testing.assert_array_equal(codes, CODES, strict=True)
    np.testing.assert_array_equal(scale, scales)


@pytest.mark.parametrize("stem", sorted(path.stem for path in GOLDEN.glob("ort_t_*.npz")))
def test_files_of_what_the_operator_reads(tmp_path: Path, stem: str) -> None:
    with np.load(GOLDEN / f"{stem}.npz") as vector:
        size, expected, weights = int(vector["block_size"]), vector["dequant_c"], vector["weights"]
        inputs = {key: vector[key] for key in ("packed", "scales", "zero_points")}
    N, K = weights.shape
    initializers = [onnx.numpy_helper.from_array(each, key) for key, each in inputs.items()]
    node = onnx.helper.make_node(
        "MatMulNBits", ["a", *inputs], ["y"], domain="com.microsoft", N=N, K=K, bits=2, block_size=size
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], initializers)), str(path))
    codes, scale, _ = read(path)
    np.testing.assert_array_equal(codes, weights, strict=True)
    scale = scale.reshape(N, -1)
    np.testing.assert_array_equal(codes * np.repeat(scale, K // scale.shape[1], axis=1), expected)


@pytest.mark.parametrize("columns", [40, 100, 130, 1000])
def test_rows_that_are_no_multiple_of_a_block(tmp_path: Path, columns: int) -> None:
    codes = families.ternary("ragged", (5, columns), columns)[0]
    blocks = -(-columns // 128)
    scales = np.arange(1, 5 * blocks + 1, dtype=np.float32).reshape(5, blocks)
    found, scale, _ = read(families.onnx_model(tmp_path / "m.onnx", {NAME: (codes, scales)}))
    np.testing.assert_array_equal(found, codes)
    scale = scale.reshape(5, -1)
    each = np.repeat(scale, columns // scale.shape[1], axis=1)
    np.testing.assert_array_equal(each, np.repeat(scales, 128, axis=1)[:, :columns])


PREPACKED = families.ternary("prepacked", (128, 256), 128)
"""Its kernels need N to be a multiple of 128."""


def prepacked(path: Path, block_size: int = 128, points: str = "packed", **attributes: int) -> Path:
    """A model with one product in the order of CUDA kernels."""
    codes, scales = PREPACKED
    scales = np.repeat(scales, 128 // block_size, axis=1)
    families.onnx_model(path, {NAME: (codes, scales)}, block_size, points, weight_prepacked=1, **attributes)
    model = onnx.load(str(path))
    stored = next(each for each in model.graph.initializer if each.name == NAME)
    packed = described.prepacked(codes, 2 if points == "absent" else 1)
    stored.CopyFrom(onnx.numpy_helper.from_array(packed.reshape(tuple(stored.dims)), NAME))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("points", ["packed", "float16", "absent"])
@pytest.mark.parametrize("block_size", [64, 128])
def test_weights_in_the_order_of_cuda_kernels(tmp_path: Path, points: str, block_size: int) -> None:
    codes, scale, weights = read(prepacked(tmp_path / "m.onnx", block_size, points))
    np.testing.assert_array_equal(codes, PREPACKED[0], strict=True)
    np.testing.assert_array_equal(np.repeat(scale, block_size, axis=1), np.repeat(PREPACKED[1], 128, axis=1))
    (info,) = weights.matrices
    assert info.format == "ort_q2_sm80"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"N": 64}, "N 64 and K 256 with weight_prepacked 1"),
        ({"K": 192}, "N 128 and K 192 with weight_prepacked 1"),
        ({"block_size": 32}, "block_size 32 with weight_prepacked 1"),
    ],
)
def test_shapes_that_cuda_kernels_do_not_read_are_refused(tmp_path: Path, changes: dict[str, int], told: str) -> None:
    path = prepacked(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    attribute(**changes)(model)
    path.write_bytes(model.SerializeToString())
    with open_weights(path) as source, pytest.raises(WeightFileError, match=told):
        TernaryWeights(source, HOLDERS)


def test_a_layout_that_is_no_integer_is_refused(tmp_path: Path) -> None:
    def change(model: Any) -> None:
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("weight_prepacked", "sm80"))

    with pytest.raises(WeightFileError, match="weight_prepacked of attribute type 3"):
        open_weights(one(tmp_path / "m.onnx", change))


def attribute(**values: int) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for name, value in values.items():
            found = [each for each in model.graph.node[0].attribute if each.name == name]
            if found:
                found[0].i = value
            else:
                model.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value))

    return change


def initializer(end: str, value: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        name = NAME + end
        stored = next(each for each in model.graph.initializer if each.name == name)
        stored.CopyFrom(onnx.numpy_helper.from_array(value, name))

    return change


def points(value: float) -> Callable[[Any], None]:
    return initializer("_zero_points", np.full((6, 2), value, np.float32))


NOT_TERNARY: dict[str, tuple[Callable[[Any], object], str]] = {
    "4 bits": (attribute(bits=4), "MatMulNBits, 4 bits"),
    "prepacked for SM90": (attribute(weight_prepacked=2), "weight_prepacked 2: the layout of SM90"),
    "prepacked in another way": (attribute(weight_prepacked=-1), "weight_prepacked -1: an unknown layout"),
    "in another order": (lambda model: model.graph.node[0].input.append("order"), "g_idx"),
    "zero point 3": (points(3), "zero point 3"),
    "zero point 0.5": (points(0.5), "zero point 0.5"),
    "zero point 1.5": (points(1.5), "zero point 1.5"),
    "packed zero points of 0": (initializer("_zero_points", np.zeros(6, np.uint8)), "zero point 0"),
}


@pytest.mark.parametrize("what", NOT_TERNARY)
def test_other_weights_are_listed(tmp_path: Path, what: str) -> None:
    change, told = NOT_TERNARY[what]
    with open_weights(one(tmp_path / "m.onnx", change)) as source:
        weights = TernaryWeights(source, HOLDERS)
        assert weights.matrices == ()
        assert told in weights.not_ternary[NAME]
        assert {NAME} < {name for each in left_out(weights, ()) for name in each.names}


def test_weights_of_other_operators_are_listed(tmp_path: Path) -> None:
    def change(model: Any) -> None:
        model.graph.node[0].op_type = "GatherBlockQuantized"
        model.graph.node[0].input[:2] = [NAME, "ids"]

    with open_weights(one(tmp_path / "m.onnx", change)) as source:
        weights = TernaryWeights(source, HOLDERS)
        assert weights.not_ternary == {NAME: "weights of com.microsoft.GatherBlockQuantized, which are not read"}


def external(key: str, value: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        stored = next(each for each in model.graph.initializer if each.name == NAME)
        for each in stored.external_data:
            if each.key == key:
                each.value = value

    return change


def again(model: Any) -> None:
    node = model.graph.node.add()
    node.CopyFrom(model.graph.node[0])
    attribute(K=255)(model)


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "another N": (attribute(N=5), "uint8 (5, 2, 32), as the node states"),
    "another K": (attribute(K=300), "uint8 (6, 3, 32), as the node states"),
    "no K": (attribute(K=0), "'K': 0"),
    "a negative N": (attribute(N=-6), "'N': -6"),
    "another block": (attribute(block_size=100), "block_size 100"),
    "scales cut": (initializer("_scales", np.ones(11, np.float32)), "float32 of shape (11,)"),
    "integer scales": (initializer("_scales", np.ones(12, np.int32)), "int32 of shape (12,)"),
    "a NaN scale": (initializer("_scales", np.full(12, np.nan, np.float32)), "nan at [0]"),
    "an infinite zero point": (points(np.inf), "inf at [0, 0]"),
    "zero points cut": (initializer("_zero_points", np.full(5, 0x55, np.uint8)), "uint8 of shape (5,)"),
    "field 3": (initializer("", np.full((6, 2, 32), 0xFF, np.uint8)), "field 3 with zero point 1 at (0, 0)"),
    "scales that are computed": (lambda model: model.graph.node[0].input.__setitem__(2, "x"), "no initializer"),
    "two meanings": (again, "differently"),
    "two of a name": (lambda model: model.graph.initializer.append(model.graph.initializer[0]), "two initializers"),
    "a negative size": (lambda model: model.graph.initializer[0].dims.__setitem__(0, -6), "sizes >= 0"),
    "too few bytes": (lambda model: model.graph.initializer[0].dims.__setitem__(0, 60), "bytes of initializer"),
    "no graph": (lambda model: model.ClearField("graph"), "no graph"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_models_that_contradict_are_refused(tmp_path: Path, what: str) -> None:
    change, told = REFUSED[what]
    with pytest.raises(WeightFileError) as caught:
        read(one(tmp_path / "m.onnx", change))
    assert told in str(caught.value)


EXTERNAL = {
    ("location", "../m.onnx_data"): "a file in the folder of the model",
    ("location", "/etc/passwd"): "a file in the folder of the model",
    ("location", ""): "a file in the folder of the model",
    ("location", "missing"): "No such file",
    ("offset", "-1"): "a number of bytes",
    ("offset", "1" * 19): "inside 'm.onnx_data'",
    ("length", "383"): "383 bytes from byte",
    ("length", "a"): "a number of bytes",
}


@pytest.mark.parametrize(("key", "value"), EXTERNAL)
def test_external_data_that_is_elsewhere_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(WeightFileError) as caught:
        read(one(tmp_path / "m.onnx", external(key, value), external=True))
    assert EXTERNAL[key, value] in str(caught.value)


def test_truncated_external_data_is_refused(tmp_path: Path) -> None:
    path = one(tmp_path / "m.onnx", external=True)
    data = tmp_path / "m.onnx_data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(WeightFileError, match="external data of initializer"):
        read(path)


@pytest.mark.parametrize("raw", [b"", b"GGUF", bytes(64), b"\xff" * 64])
def test_what_is_no_model_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(raw)
    with pytest.raises(WeightFileError, match="an ONNX model"):
        open_weights(path)


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_truncated_model_is_refused_or_has_less(tmp_path: Path, cut: int) -> None:
    path = one(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=r"m\.onnx|not enough values"):  # refused, or without matrices
        read(path)


def test_without_the_package_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = one(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(WeightFileError, match="`pip install onnx`"):
        open_weights(path)


def test_floats_of_a_model_are_no_layers(tmp_path: Path) -> None:
    """ONNX stores the weights of MatMul as (K, N), and does not state which initializers are weights."""
    weights = families.values(CODES, SCALES)
    stored = onnx.numpy_helper.from_array(weights, "model.layers.0.mlp.up_proj.weight")
    path = tmp_path / "m.onnx"
    onnx.save_model(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [stored])), str(path))
    with open_weights(path) as source:
        assert TernaryWeights(source, HOLDERS).matrices == ()
        assert list(source.matrices()) == []
