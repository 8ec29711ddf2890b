"""Pieces that are exchanged before samples: the parent's expected outputs equal the reference of the whole."""

from __future__ import annotations

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


def logical_of(inputs: dict[str, Any], encoded: dict[str, Any], format: str, axes: dict[str, int]) -> dict[str, Any]:
    """The inputs of that encoding."""
    found = {
        name: encoded[name].astype(value.dtype) if isinstance(value, np.ndarray) and name != "weights" else value
        for name, value in inputs.items()
    }
    if "weights" in inputs:
        found["weights"], scales = FORMATS[format].unpack(encoded["weights"], (axes["N"], axes["K"]))
        found["weight_scale"] = scales if np.ndim(scales) else inputs["weight_scale"]
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
    for number, piece in enumerate(found.pieces.each):
        patched = {name: np.array(value) for name, value in both[case].items()}
        changed = 0
        for name, (begin, end) in piece.inputs.items():
            content = piece.content(name, both, case, exchanged=True)
            flat = patched[name].reshape(-1)
            changed += int((content.view(np.uint8) != flat[begin:end].view(np.uint8)).sum())
            flat[begin:end] = content
            assert np.array_equal(
                piece.content(name, both, case, exchanged=False), both[case][name].reshape(-1)[begin:end]
            )
        assert changed or not piece.held
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


def test_some_pieces_change_in_a_short_run_alone() -> None:
    shares = []
    for shape in SHAPES:
        _, key, material, found = made(*shape)
        both = tuple(material.encoded(key.format))
        for piece in found.pieces.each:
            if piece.held and max(end - begin for begin, end in piece.inputs.values()) >= 16:
                pairs = [
                    (piece.content(name, both, 0, exchanged=True), piece.content(name, both, 0, exchanged=False))
                    for name in piece.inputs
                ]
                differing = sum(int((one.view(np.uint8) != two.view(np.uint8)).sum()) for one, two in pairs)
                shares.append(differing / sum(one.nbytes for one, _ in pairs))
    assert len(shares) > 20
    assert min(shares) < 0.01
    assert max(shares) <= 0.5


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
