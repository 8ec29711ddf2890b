"""Exactly ternary floats become their own codes and scales; no other floats do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.compare import compare
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.finite import slabs
from tritmark.harness.weights.float_codes import FloatLayout, has_four_levels, layout_of, split
from tritmark.harness.weights.quantized import loss
from tritmark.harness.weights.scales import by_row

NAME = "model.layers.0.mlp.up_proj.weight"
SHAPE = (8, 512)
CODES = np.random.default_rng(0).integers(-1, 2, SHAPE).astype(np.int8)
HOLDERS = holders_of(installed())


def values(codes: NDArray[np.int8], scale: Any) -> NDArray[np.float32]:
    """Codes times scales of any layout."""
    scales = by_row(scale, (codes.shape[0], codes.shape[1]))
    found: NDArray[np.float32] = np.multiply(codes, np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1))
    return found


def detected(floats: NDArray[np.float32], slab: int = 1 << 20) -> FloatLayout | None:
    return layout_of(lambda rows: floats[rows].copy(), slabs(floats.shape, slab), floats.shape[1])


def written(folder: Path, tensors: dict[str, Any], config: Any = None) -> Path:
    save_file(tensors, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "bitnet", **config}}))
    return folder / "model.safetensors"


def read(path: Path) -> tuple[NDArray[np.int8], Any]:
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS)
        (info,) = weights.matrices
        assert not info.ruled
        return weights.read(info)


LAYOUTS = {
    "one": (np.float32(0.5), FloatLayout("tensor")),
    "one that float16 lacks": (np.float32(0.1), FloatLayout("tensor", 0, float16=False)),
    "rows": (np.arange(1, 9, dtype=np.float32) / 8, FloatLayout("row")),
    **{
        f"groups of {size}": (
            np.arange(1, 1 + 8 * 512 // size, dtype=np.float32).reshape(8, -1) / 1024,
            FloatLayout("group", size),
        )
        for size in (256, 128, 64, 32)
    },
}


@pytest.mark.parametrize("what", LAYOUTS)
@pytest.mark.parametrize("slab", [1, 1024, 1 << 20])
def test_the_layout_of_the_scales_is_found(what: str, slab: int) -> None:
    scale, expected = LAYOUTS[what]
    floats = values(CODES, scale)
    assert detected(floats, slab) == expected
    codes, found = split(floats.copy(), expected)
    np.testing.assert_array_equal(codes, CODES)
    np.testing.assert_array_equal(found, scale)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("what", ["one", "rows", "groups of 128"])
def test_every_dtype_of_floats(tmp_path: Path, dtype: Any, what: str) -> None:
    scale = LAYOUTS[what][0]
    codes, found = read(written(tmp_path, {NAME: values(CODES, scale).astype(dtype)}))
    np.testing.assert_array_equal(codes, CODES)
    np.testing.assert_array_equal(found, scale)


def test_zero_has_two_signs_and_fits_every_scale() -> None:
    codes = CODES.copy()
    codes[2] = 0
    codes[5, 128:256] = 0
    floats = values(codes, np.float32(0.5))
    floats[floats == 0] = -0.0
    layout = detected(floats)
    assert layout == FloatLayout("tensor")
    found, scale = split(floats, layout)
    np.testing.assert_array_equal(found, codes)
    assert scale == 0.5
    rows = np.arange(1, 9, dtype=np.float32)
    layout = detected(values(codes, rows))
    assert layout == FloatLayout("row")
    found, scales = split(values(codes, rows), layout)
    np.testing.assert_array_equal(values(found, scales), values(codes, rows))


def test_zeros_go_through_every_format_that_has_room(tmp_path: Path) -> None:
    codes = CODES.copy()
    codes[2] = 0
    zero, rows = np.zeros(SHAPE, np.float32), values(codes, np.arange(1, 9, dtype=np.float32))
    for floats, targets in ((zero, ["i2_s_x86", "tq2_0", "iq2_bn"]), (rows, ["tq2_0", "q2_0", "iq2_bn", "iq1_bn"])):
        path = written(tmp_path, {NAME: floats})
        assert read(path)[1].min() == (0 if floats is rows else 1)
        for target in targets:
            convert(path, tmp_path / "out.gguf", target, HOLDERS)
            assert compare(path, tmp_path / "out.gguf", HOLDERS).differences == ()


def test_what_is_not_ternary_has_no_layout() -> None:
    floats = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    assert detected(floats) is None
    floats = values(CODES, np.float32(0.5))
    floats[7, 511] = np.nextafter(np.float32(0.5), np.float32(1))
    assert detected(floats) is None
    assert detected(values(CODES, 1.0)[:, :24]) == FloatLayout("tensor")
    sixteen = values(CODES, np.arange(1, 257, dtype=np.float32).reshape(8, 32))
    assert detected(sixteen) is None, "a scale a group of 16 is none that a format has"
    assert detected(np.full(SHAPE, 3, np.float32)) == FloatLayout("tensor", constant=True)


@given(st.data())
def test_codes_times_scales_are_the_floats_again(data: st.DataObject) -> None:
    columns = data.draw(st.sampled_from([1, 24, 32, 96, 256, 384]))
    sizes = [size for size in (32, 64, 128, 256, columns) if columns % size == 0]
    size = data.draw(st.sampled_from(sizes))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 16)))
    codes = rng.integers(-1, 2, (3, columns)).astype(np.int8)
    floats = values(codes, rng.choice(np.array([0.25, 3.0, 0.1], np.float32), (3, columns // size)))
    layout = detected(floats)
    assert layout is not None
    np.testing.assert_array_equal(values(*split(floats.copy(), layout)), floats)


def test_float64_is_not_rounded_to_be_ternary(tmp_path: Path) -> None:
    floats = values(CODES, np.float32(0.5)).astype(np.float64)
    row, column = (int(each[0]) for each in np.nonzero(floats))
    floats[row, column] = 0.5 + 2**-40
    with open_weights(written(tmp_path, {NAME: floats})) as source:
        assert [info.ruled for info in TernaryWeights(source, HOLDERS).matrices] == [True]


# ---- codes beside their scale

BESIDE: dict[str, tuple[Any, Any]] = {
    "one": (np.array([2.0], np.float32), np.float32(2)),
    "one without dimensions": (np.array(2.0, np.float32), np.float32(2)),
    "rows": (np.arange(1, 9, dtype=np.float32), np.arange(1, 9, dtype=np.float32)),
    "rows in a column": (np.arange(1, 9, dtype=np.float32)[:, None], np.arange(1, 9, dtype=np.float32)),
    "groups": (np.arange(1, 33, dtype=np.float32).reshape(8, 4),) * 2,
}


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("divide", [False, True])
def test_codes_beside_a_scale(tmp_path: Path, what: str, dtype: Any, divide: bool) -> None:
    stored, scale = BESIDE[what]
    config = {"linear_class": "bitlinear" if divide else "autobitlinear"}
    path = written(tmp_path, {NAME: CODES.astype(dtype), f"{NAME}_scale": stored}, config)
    codes, found = read(path)
    np.testing.assert_array_equal(codes, CODES)
    np.testing.assert_array_equal(found, np.float32(1) / scale if divide else scale)


@pytest.mark.parametrize(
    ("weights", "scale", "told"),
    [
        (values(CODES, 0.5), np.ones(1, np.float32), "at [0, 0]; legal: codes -1, 0 and 1"),
        (CODES * np.int8(3), np.ones(1, np.float32), "legal: codes -1, 0 and 1"),
        (CODES.astype(np.float32), np.ones(3, np.float32), "float32 of shape (3,)"),
        (CODES.astype(np.float32), np.ones((1, 512), np.float32), "float32 of shape (1, 512)"),
        (CODES.astype(np.float32), np.ones((8, 3), np.float32), "float32 of shape (8, 3)"),
        (CODES.astype(np.float32), np.ones(1, np.int32), "int32 of shape (1,)"),
        (
            CODES.astype(np.float32),
            np.array([-2], np.float32),
            "-2.0; legal: a number with a finite result >= 0",
        ),
        (CODES.astype(np.float32), np.array([1, 1, np.nan, 1, 1, 1, 1, 1], np.float32), "nan at [2]"),
        (CODES.astype(np.float32), np.array([np.inf], np.float32), "inf"),
    ],
)
def test_what_is_no_codes_and_scale_is_refused(tmp_path: Path, weights: Any, scale: Any, told: str) -> None:
    path = written(tmp_path, {NAME: weights, f"{NAME}_scale": scale})
    with pytest.raises(WeightFileError) as caught:
        read(path)
    assert told in str(caught.value)
    assert NAME in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("floats", [values(CODES, 0.5), np.random.default_rng(2).standard_normal(SHAPE, np.float32)])
def test_what_is_no_number_is_an_error_of_the_file(tmp_path: Path, value: float, floats: Any) -> None:
    floats = floats.copy()
    floats[6, 300] = value
    path = written(tmp_path, {NAME: floats})
    with pytest.raises(WeightFileError, match=rf"{NAME}': {value} at \[6, 300\]"), open_weights(path) as source:
        TernaryWeights(source, HOLDERS).require_finite()


# ---- which matrices of a file are ternary


@pytest.mark.parametrize(
    "name",
    ["model.language_model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.experts.3.down_proj.weight"],
)
def test_towers_and_experts_are_ternary_only_if_their_floats_are(tmp_path: Path, name: str) -> None:
    codes, scale = read(written(tmp_path, {name: values(CODES, 0.25)}))
    np.testing.assert_array_equal(codes, CODES)
    assert scale == 0.25
    real = np.random.default_rng(5).standard_normal(SHAPE, np.float32)
    for floats in (real, np.ones(SHAPE, np.float32)):
        with open_weights(written(tmp_path, {name: floats})) as source:
            assert TernaryWeights(source, HOLDERS).matrices == ()


def test_each_matrix_is_decided_by_itself(tmp_path: Path) -> None:
    real = NAME.replace("up", "gate")
    floats = np.random.default_rng(3).standard_normal(SHAPE, np.float32)
    path, out = written(tmp_path, {NAME: values(CODES, 0.75), real: floats}), tmp_path / "out.gguf"
    found = convert(path, out, "i2_s_x86", HOLDERS)
    assert (found.matrices, found.others, found.floats, found.quantized) == (1, 1, 1, 0)
    assert compare(path, out, HOLDERS).differences == ()
    found = convert(path, out, "i2_s_x86", HOLDERS, quantize="absmean")
    assert (found.matrices, found.others, found.floats, found.quantized) == (2, 0, 0, 1)
    (difference,) = compare(path, out, HOLDERS).differences
    assert (difference.name, difference.other_name, difference.what) == (real, "blk.0.ffn_gate.weight", "values")


def test_scales_that_a_format_lacks_are_refused_with_those_that_have_them(tmp_path: Path) -> None:
    path = written(tmp_path, {NAME: values(CODES, np.arange(1, 9, dtype=np.float32))})
    for target, others in (("i2_s_x86", {"iq2_bn", "tq2_0", "q2_0"}), ("i2_s_arm", {"iq1_bn"})):
        with pytest.raises(InvalidArgumentError, match="formats that hold these scales") as caught:
            convert(path, tmp_path / "out.gguf", target, HOLDERS)
        assert others <= set(caught.value.legal.rpartition(": ")[2].split(", "))
        assert not (tmp_path / "out.gguf").exists()
    for target in ("iq2_bn", "tq2_0", "q2_0"):
        convert(path, tmp_path / "out.gguf", target, HOLDERS)
        assert compare(path, tmp_path / "out.gguf", HOLDERS).differences == ()


def test_real_floats_are_compared_as_floats(tmp_path: Path) -> None:
    floats = np.random.default_rng(4).standard_normal(SHAPE, np.float32)
    other = floats.copy()
    other[3, 7] += 1
    (tmp_path / "b").mkdir()
    a, b = written(tmp_path, {NAME: floats}), written(tmp_path / "b", {NAME: other})
    found = compare(a, b, HOLDERS)
    (difference,) = found.differences
    assert found.matrices == 0
    assert (difference.name, difference.description) == (NAME, f"{floats[3, 7]} and {other[3, 7]} at [3, 7]")
    other[3, 7] = floats[3, 7]
    assert compare(a, written(tmp_path / "b", {NAME: other}), HOLDERS).differences == ()


def test_the_loss_is_that_of_its_definition() -> None:
    weights = np.array([[0.5, -0.25, 0.0, 2.0], [1.0, 0.26, -0.24, 0.75]], np.float32)
    codes, scale = np.array([[1, 0, 0, 1], [1, 1, 0, 1]], np.int8), np.float32(0.5)
    found = loss(weights, codes, scale, "bfloat16")
    error = weights.astype(np.float64) - codes * 0.5
    assert (found.signal, found.elements) == ((weights.astype(np.float64) ** 2).sum(), 8)
    assert found.noise == (error**2).sum()
    assert found.near_ties == 1, "0.26 is further from 0.25 than the 2^-9 that bfloat16 is apart there"
    assert loss(codes * scale, codes, scale, "float32").snr_db is None


@pytest.mark.parametrize("group", [32, 64, 256])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_four_levels_are_known_by_their_ratio(group: int, dtype: Any) -> None:
    rng = np.random.default_rng(group)
    levels = rng.choice(np.array([-1.5, -0.5, 0.5, 1.5], np.float32), (4, 256))
    scales = np.repeat(rng.uniform(0.01, 0.1, (4, 256 // group)).astype(np.float32), group, axis=1)
    rows = (levels * scales).astype(dtype).astype(np.float32)
    assert has_four_levels(rows.copy())
    assert not has_four_levels(rng.standard_normal((4, 256), np.float32))
    assert not has_four_levels(np.sign(levels) * scales)
    rows[2, 7] = 0
    assert not has_four_levels(rows)
