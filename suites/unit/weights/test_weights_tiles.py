"""TL1 and TL2 of bitnet.cpp in GGUF: read if the shape has published tiles, otherwise listed with the reason.

`utils/convert-hf-to-gguf-bitnet.py` writes the scale as a tensor NAME_scale, and ggml_nbytes of bitnet.cpp counts 32
bytes behind the codes, where its kernels read the scale.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.compare import compare
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.left_out import left_out
from tritmark.kernels.formats import FORMATS

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families = import_module("model_families")
HOLDERS = holders_of(installed())
NAME, SCALE = "blk.0.attn_q.weight", np.array([0.375], "<f4")
TYPES = {"tl1": 38, "tl2": 39}
SHAPES = {"tl1": (1536, 1536), "tl2": (3200, 3200)}
REST = ("output_norm.weight", (8,), families.F32, bytes(32))


def codes(shape: tuple[int, int]) -> Any:
    return np.random.default_rng(0).integers(-1, 2, shape, np.int8)


def model(path: Path, format: str, *, beside: bool, shape: tuple[int, int] | None = None, cut: int = 0) -> Path:
    shape = shape or SHAPES[format]
    raw = FORMATS[format].pack(codes(shape), 1.0).tobytes()
    raw = raw if beside else raw + bytes(-len(raw) % 32) + SCALE.tobytes() + bytes(28)
    tensors: list[tuple[str, tuple[int, ...], int, bytes]] = [(NAME, shape, TYPES[format], raw[: len(raw) - cut])]
    tensors += [(f"{NAME}_scale", (1,), families.F32, SCALE.tobytes())] if beside else []
    return Path(families.gguf(path, [*tensors, REST], {"general.architecture": "bitnet"}))


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("format", TYPES)
def test_published_tiles_are_read(tmp_path: Path, format: str, beside: bool) -> None:
    path = model(tmp_path / "m.gguf", format, beside=beside)
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS)
        weights.require_finite()
        (info,) = weights.matrices
        found, scale = weights.read(info)
        assert info.format == format
        rest = {name for each in left_out(weights, {info.name}) for name in each.names}
        assert rest == {"output_norm.weight"}
    np.testing.assert_array_equal(found, codes(SHAPES[format]))
    assert scale == SCALE[0]
    convert(path, tmp_path / "out.gguf", "i2_s_x86", HOLDERS)
    assert compare(path, tmp_path / "out.gguf", HOLDERS).differences == ()


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("format", TYPES)
def test_other_tiles_are_listed(tmp_path: Path, format: str, beside: bool) -> None:
    path = model(tmp_path / "m.gguf", format, beside=beside, shape=(256, 768))
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS)
        assert weights.matrices == ()
        names = {NAME, *([f"{NAME}_scale"] if beside else [])}
        assert set(weights.not_ternary) == names
        assert "the tiles of (256, 768) are in an ini file" in weights.not_ternary[NAME]


@pytest.mark.parametrize("format", TYPES)
def test_another_size_is_listed(tmp_path: Path, format: str) -> None:
    with open_weights(model(tmp_path / "m.gguf", format, beside=True, cut=64)) as source:
        assert "bytes are not those of" in TernaryWeights(source, HOLDERS).not_ternary[NAME]


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", "tl1", beside=False)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(SCALE.tobytes(), np.array([np.nan], "<f4").tobytes()))
    with open_weights(path) as source, pytest.raises(WeightFileError, match="nan"):
        TernaryWeights(source, HOLDERS).require_finite()


def test_mxfp4_under_the_number_of_tl2_stays_mxfp4(tmp_path: Path) -> None:
    path = families.gguf(tmp_path / "m.gguf", [(NAME, (4, 32), 39, bytes(17 * 4)), REST], {})
    with open_weights(path) as source:
        assert [each.dtype for each in source.tensors] == ["mxfp4", "float32"]
        assert TernaryWeights(source, HOLDERS).not_ternary == {}
