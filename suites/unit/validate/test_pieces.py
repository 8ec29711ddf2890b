"""Pieces that are exchanged before samples: what the parent expects of them is what the op's reference says of the
whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.providers import load
from tritmark.harness.spec import KernelKey, Workload
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.pieces import NOTHING, exchangeable

OPS = load(()).ops
SHAPES: list[tuple[str, str, str, dict[str, int]]] = [
    ("i2s_quantize", "none", "int8", {"n": 5001}),
    ("i2s_dequantize", "none", "float32", {"n": 70}),
    ("float_narrow", "none", "float16", {"n": 3000}),
    ("float_widen", "bfloat16", "float32", {"n": 3000}),
    ("ternary_quantize", "none", "int8", {"n": 4100, "block": 32}),
    ("ternary_quantize", "i2_s_x86", "uint8", {"n": 4100, "block": 96}),
    ("ternary_quantize", "row16", "uint8", {"n": 4100, "block": 256}),
    ("ternary_quantize", "tq2_0", "uint8", {"n": 4096, "block": 256}),
    ("activation_quantize", "none", "int8", {"M": 7, "K": 65}),
    ("activation_quantize", "float16", "int8", {"M": 7, "K": 65}),
    ("ternary_matmul", "tile64", "float32", {"M": 2, "N": 300, "K": 130}),
    ("ternary_matmul", "tile80", "float32", {"M": 2, "N": 300, "K": 130}),
    ("ternary_matmul", "row16", "int32", {"M": 1, "N": 200, "K": 77}),
    ("ternary_matmul", "tq2_0", "float32", {"M": 2, "N": 200, "K": 512}),
    ("ternary_matmul", "tl1", "float32", {"M": 2, "N": 320, "K": 200}),
    ("matmul_fp32", "none", "float32", {"M": 5, "N": 33, "K": 20}),
]
STRETCHES: list[tuple[str, str, str, dict[str, int]]] = [
    ("absmean_quantize", "none", "int8", {"n": 5000}),
    ("activation_quantize", "none", "int8", {"M": 1, "K": 700}),
    ("ternary_matmul", "tl2", "int32", {"M": 2, "N": 320, "K": 320}),
    ("ternary_quantize", "none", "int8", {"n": 3000, "block": 5000}),
]


def made(op: str, format: str, dtype: str, axes: dict[str, int]) -> tuple[Any, KernelKey, Material, Any]:
    key = KernelKey("cpu", op, format, dtype)
    material = Material(OPS[op], Workload(op=op, axes=axes, family="uniform"), 3)
    encoded = tuple(material.encoded(format))
    return OPS[op], key, material, exchangeable(OPS[op], key, axes, material.logical, encoded, np.random.default_rng(1))


def mixed(op: Any, logical: tuple[Any, ...], axis: str, start: int, stop: int) -> dict[str, Any]:
    """The first data with a part along an axis from the second."""
    inputs = dict(logical[0])
    for tensor in op.inputs:
        if axis in tensor.axes:
            where = (slice(None),) * tensor.axes.index(axis) + (slice(start, stop),)
            inputs[tensor.name] = inputs[tensor.name].copy()
            inputs[tensor.name][where] = logical[1][tensor.name][where]
    return inputs


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{op}-{format}-{dtype}" for op, format, dtype, _ in SHAPES])
def test_a_piece_gives_what_the_whole_gives_there(shape: tuple[str, str, str, dict[str, int]]) -> None:
    op, key, material, found = made(*shape)
    axes = shape[3]
    axis, unit = op.apart(axes, key)
    assert found.pieces.together
    assert 2 <= len(found.pieces.each) <= 16
    for number, piece in enumerate(found.pieces.each):
        # From the elements of an input that is not packed follows where the piece lies.
        name, length = next((each.name, material.logical[0][each.name]) for each in op.inputs if axis in each.axes)
        per = length.size // axes[axis]
        plain = material.encoded(key.format)[0][name].size == length.size
        if plain:
            start, stop = (end // per for end in piece.inputs[name])
        else:
            _, start, stop = piece.outputs["out"]
        assert (stop - start) % unit == 0
        inputs = mixed(op, material.logical, axis, start, stop)
        encoded = op.encode(inputs, axes, key.format)
        for each, value in material.encoded(key.format)[0].items():
            if each in piece.inputs:
                begin, end = piece.inputs[each]
                patched = value.copy().reshape(-1)
                patched[begin:end] = material.encoded(key.format)[1][each].reshape(-1)[begin:end]
                assert np.array_equal(encoded[each].reshape(-1).view(np.uint8), patched.view(np.uint8))
        whole = expectations(op, axes, key, op.reference(inputs, axes, key))
        before = material.cases(key).first.expected
        for expected, part, base in zip(whole, found.expected[0][number], before, strict=True):
            assert np.array_equal(piece.of(expected.name, expected.values), part.values)
            rest = np.array(base.values)
            piece.of(expected.name, rest)[...] = part.values
            assert np.array_equal(rest, expected.values)


@pytest.mark.parametrize("shape", STRETCHES, ids=[op for op, *_ in STRETCHES])
def test_where_everything_hangs_together_a_stretch_is_exchanged(shape: tuple[str, str, str, dict[str, int]]) -> None:
    op, key, material, found = made(*shape)
    assert not found.pieces.together
    for number, piece in enumerate(found.pieces.each):
        ((name, (begin, end)),) = piece.inputs.items()
        inputs = {**material.logical[0], name: material.logical[0][name].copy()}
        inputs[name].reshape(-1)[begin:end] = material.logical[1][name].reshape(-1)[begin:end]
        whole = expectations(op, shape[3], key, op.reference(inputs, shape[3], key))
        for expected, part in zip(whole, found.expected[0][number], strict=True):
            assert np.array_equal(expected.values, part.values)


def test_what_is_too_small_has_no_pieces() -> None:
    assert made("absmean_quantize", "none", "int8", {"n": 3})[3] is NOTHING
