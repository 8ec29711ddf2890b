"""Pieces that are exchanged before samples: the parent's expected outputs equal the reference of the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import lcm
from typing import Any

import numpy as np
import pytest
from exchanged_shapes import OPS, SHAPES, STRETCHES

from tritmark.harness.spec import KernelKey, Workload
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.compare import expectations
from tritmark.harness.validate.pieces import NOTHING, exchangeable
from tritmark.kernels.formats import FORMATS


def made(op: str, format: str, dtype: str, axes: dict[str, int]) -> tuple[Any, KernelKey, Material, Any]:
    key = KernelKey("cpu", op, format, dtype)
    material = Material(OPS[op], Workload(op=op, axes=axes, family="uniform"), 3)
    encoded = tuple(material.encoded(format))
    return OPS[op], key, material, exchangeable(OPS[op], key, axes, material.logical, encoded, np.random.default_rng(1))


def in_pieces(found: Any) -> bool:
    return found.pieces.together and bool(found.pieces.each)


def logical_of(inputs: dict[str, Any], encoded: dict[str, Any], format: str, axes: dict[str, int]) -> dict[str, Any]:
    """The inputs of that encoding."""
    found = {
        name: encoded[name].astype(value.dtype) if isinstance(value, np.ndarray) and name != "weights" else value
        for name, value in inputs.items()
    }
    if "weights" in inputs:
        found["weights"], scales = FORMATS[format].unpack(encoded["weights"], (axes["N"], axes["K"]))
        found["weight_scale"] = scales if np.ndim(scales) and FORMATS[format].scale_stored else inputs["weight_scale"]
    return found


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=[f"{op}-{format}-{dtype}" for op, format, dtype, _ in SHAPES])
def test_a_piece_gives_what_the_whole_gives_there(shape: tuple[str, str, str, dict[str, int]], case: int) -> None:
    op, key, material, found = made(*shape)
    axes = shape[3]
    _, unit = op.independent_axis(axes, key)
    both, cases = tuple(material.encoded(key.format)), material.cases(key)
    assert cases.second is not None
    before = (cases.first, cases.second)[case].expected
    assert found.pieces.together
    assert 2 <= len(found.pieces.each) <= 16
    changed = 0
    for number, piece in enumerate(found.pieces.each):
        patched = {name: np.array(value) for name, value in both[case].items()}
        for part in piece.inputs:
            content = part.content(both, case, exchanged=True)
            flat = patched[part.name].reshape(-1)
            changed += int((content.view(np.uint8) != flat[part.begin : part.end].view(np.uint8)).sum())
            flat[part.begin : part.end] = content
            kept = part.content(both, case, exchanged=False)
            assert np.array_equal(kept, both[case][part.name].reshape(-1)[part.begin : part.end])
        inputs = logical_of(dict(material.logical[case]), patched, key.format, axes)
        for name, value in op.encode(inputs, axes, key.format).items():
            assert np.asarray(value).tobytes() == np.asarray(patched[name]).tobytes()
        whole = expectations(op, axes, key, op.reference(inputs, axes, key))
        for expected, part, base in zip(whole, found.expected[case][number], before, strict=True):
            here = piece.of(expected.name, expected.values)
            assert here.shape[piece.outputs[expected.name][0]] % unit == 0 or op.name == "ternary_quantize"
            assert np.array_equal(here, part.values)
            rest = np.array(base.values)
            piece.of(expected.name, rest)[...] = part.values
            assert np.array_equal(rest, expected.values)
    assert changed


def test_some_pieces_change_in_a_short_run_alone() -> None:
    shares = []
    for shape in SHAPES:
        _, key, material, found = made(*shape)
        both = tuple(material.encoded(key.format))
        for piece in found.pieces.each:
            exchanged, kept, other = (
                np.concatenate([content.view(np.uint8) for content in contents])
                for contents in (
                    [part.content(both, 0, exchanged=True) for part in piece.inputs],
                    [part.content(both, 0, exchanged=False) for part in piece.inputs],
                    [part.content(both, 1, exchanged=False) for part in piece.inputs],
                )
            )
            if np.array_equal(exchanged, other):
                continue  # the whole piece
            assert not np.array_equal(exchanged, kept)
            if exchanged.size >= 16:
                shares.append((exchanged != kept).mean())
    assert len(shares) > 20
    assert min(shares) < 0.01
    assert max(shares) <= 0.5


@pytest.mark.parametrize("shape", STRETCHES, ids=[op for op, *_ in STRETCHES])
def test_where_everything_hangs_together_a_stretch_is_exchanged(shape: tuple[str, str, str, dict[str, int]]) -> None:
    op, key, material, found = made(*shape)
    assert not in_pieces(found)
    assert found.pieces.each
    for number, piece in enumerate(found.pieces.each):
        (part,) = piece.inputs
        inputs = {**material.logical[0], part.name: material.logical[0][part.name].copy()}
        there = slice(part.begin, part.end)
        inputs[part.name].reshape(-1)[there] = material.logical[1][part.name].reshape(-1)[there]
        whole = expectations(op, shape[3], key, op.reference(inputs, shape[3], key))
        for expected, part in zip(whole, found.expected[0][number], strict=True):
            assert np.array_equal(expected.values, part.values)


def test_what_is_too_small_has_no_pieces() -> None:
    assert made("absmean_quantize", "none", "int8", {"n": 3})[3] is NOTHING


def test_every_format_with_a_product_has_pieces_that_it_can_write() -> None:
    """Whether rows are adjacent in the bytes is a fact of the format, and no kernel may be accused for it."""
    without = set()
    for format, form in FORMATS.items():
        if not form.ternary:
            continue
        axes = {"M": 2, "N": lcm(form.row_multiple, 640), "K": lcm(form.column_multiple, 256)}
        _, key, material, found = made("ternary_matmul", format, "float32", axes)
        if not in_pieces(found):
            without.add(format)
            continue
        both = tuple(material.encoded(format))
        ranges = sorted((part.name, part.begin, part.end) for piece in found.pieces.each for part in piece.inputs)
        assert all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(ranges)), format
        for case in (0, 1):
            patched = {name: np.array(value) for name, value in both[case].items()}
            for piece in found.pieces.each:
                for part in piece.inputs:
                    patched[part.name].reshape(-1)[part.begin : part.end] = part.content(both, case, exchanged=True)
            inputs = logical_of(dict(material.logical[case]), patched, format, axes)
            whole = expectations(OPS["ternary_matmul"], axes, key, OPS["ternary_matmul"].reference(inputs, axes, key))
            for number, piece in enumerate(found.pieces.each):
                for expected, part in zip(whole, found.expected[case][number], strict=True):
                    assert np.array_equal(piece.of(expected.name, expected.values), part.values), format
    # A byte or a tile of these has weights of distant rows.
    assert without == {"hf_pack", "tl2"}


def doubled(encode: Callable[[dict[str, Any]], dict[str, Any]], n: int = 500) -> Any:
    """What is exchanged of an op with `n` independent elements, whose inputs are encoded so."""
    op = replace(OPS["i2s_dequantize"], encode=lambda inputs, axes, format: encode(dict(inputs)))
    material = Material(op, Workload(op=op.name, axes={"n": n}, family="uniform"), 3)
    encoded = tuple(material.encoded("none"))
    key = KernelKey("cpu", op.name, "none", "float32")
    return exchangeable(op, key, {"n": n}, material.logical, encoded, np.random.default_rng(1))


@pytest.mark.parametrize(
    "encode",
    [
        lambda inputs: {**inputs, "none": None, "name": "a", "empty": np.zeros(0, np.int8), "table": np.arange(5)},
        lambda inputs: {**inputs, "high": inputs["q"] >> 1},
    ],
    ids=["constants", "two arrays of one"],
)
def test_what_is_stored_beside_a_piece_alone_does_no_harm(encode: Any) -> None:
    found = doubled(encode)
    assert found.pieces.together
    assert len(found.pieces.each) == 16


@pytest.mark.parametrize(
    "encode",
    [
        lambda inputs: {**inputs, "sum": np.array([inputs["q"].sum(dtype=np.int64)])},
        lambda inputs: {**inputs, "parity": np.array([inputs["q"].sum() & 1])},
        lambda inputs: {**inputs, "q": inputs["q"][::-1].copy()},
        lambda inputs: {**inputs, "q": np.sort(inputs["q"])},
        lambda inputs: {**inputs, "places": np.flatnonzero(inputs["q"])},
    ],
    ids=["sum", "parity", "backwards", "sorted", "sparse"],
)
@pytest.mark.parametrize("n", [12, 16, 500])
def test_what_depends_on_every_element_is_not_exchanged_in_pieces(encode: Any, n: int) -> None:
    assert not in_pieces(doubled(encode, n))


@pytest.mark.parametrize("N", [640, 2560])
@pytest.mark.parametrize("shift", [2, -2, 64])
def test_ranges_that_a_format_states_are_not_believed(shift: int, N: int, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS["row16_g128"]
    stated: Any = type(form).row_ranges

    def wrong(self: Any, *where: Any) -> Any:
        first, *others = stated(self, *where)
        return [first, *((begin + shift, end + shift) for begin, end in others)]

    monkeypatch.setattr(type(form), "row_ranges", wrong)
    _, _, _, found = made("ternary_matmul", form.name, "float32", {"M": 2, "N": N, "K": 256})
    assert not in_pieces(found)
