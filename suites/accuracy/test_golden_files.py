"""Every file of suites/golden against the formats: bytes that the original packers wrote.

`packer` reads a file, unless READERS names another reader. One that leaves data unread fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.kernels.formats import FORMATS, TailDroppedWarning
from tritmark.kernels.provider.golden import FORMER

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(path.stem for path in GOLDEN.iterdir())
DATA = (
    "weights",
    "scale",
    "scales",
    "biases",
    "zero_points",
    "x",
    "w_float",
    "packed*",
    "dequant_c",
    "unpacked_orig",
    "acts",
    "*_exact",
    "ref*_f64",
)
"""The keys of a file that a reader must read."""
DESCRIPTION = ("packed_py*", "packed_shape", "packed_dim", "packed_dtype_orig")
"""Those among them that need not be: other packers' bytes, and words about the bytes."""


class Vector(Mapping[str, Any]):
    """The content of a file, which records the keys that were read."""

    def __init__(self, stem: str) -> None:
        with np.load(GOLDEN / f"{stem}.npz") as archive:
            self.content = dict(archive)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        found = self.content[key]
        self.read.add(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def unread(self) -> set[str]:
        data = {key for key in self if any(fnmatchcase(key, each) for each in DATA)}
        return {key for key in data - self.read if not any(fnmatchcase(key, each) for each in DESCRIPTION)}


def may_drop(name: str, shape: tuple[int, int]) -> AbstractContextManager[object]:
    """Expect the warning exactly when the original loses weights."""
    return pytest.warns(TailDroppedWarning) if FORMATS[name].dropped(shape) else nullcontext()


def packer(vector: Vector, *, scaled: bool = True) -> None:
    """The bytes of codes, the codes of bytes, and the bytes of float weights. `scaled` is false where the original's
    decoder leaves the scale out."""
    name = FORMER.get(str(vector["format"]), str(vector["format"]))
    form = FORMATS[name]
    layout: dict[str, Any] = {key: int(vector[key]) for key in form.options if key in vector and key != "preset"}
    shape = vector["weights" if "weights" in vector else "x"].shape
    dropped = form.dropped(shape)
    assert dropped == vector.get("n_tail_dropped", 0)
    with may_drop(name, shape):
        codes, scale = form.unpack(vector["packed"], shape, **layout)
    given = vector["scales"] if "scales" in vector else vector.get("scale", scale)
    if "weights" in vector:
        with may_drop(name, shape):
            np.testing.assert_array_equal(form.pack(vector["weights"], given, **layout), vector["packed"], strict=True)
        kept = codes.size - dropped
        np.testing.assert_array_equal(codes.ravel()[:kept], vector["weights"].ravel()[:kept], strict=True)
        assert np.all(codes.ravel()[kept:] == -1)
    if "scale" in vector:
        assert np.all(scale == (vector["scale"] if form.scale_stored else 1))
    if "unpacked_orig" in vector:
        expected = vector["unpacked_orig"]
        np.testing.assert_array_equal(form.unpack(vector["packed"], expected.shape)[0], expected, strict=True)
    if "dequant_c" in vector:
        several = np.asarray(scale if scaled else np.float32(1))
        if several.ndim:
            several = np.repeat(several.reshape(*shape[:-1], -1), form.group or shape[-1], axis=-1)
        np.testing.assert_array_equal(codes * several, vector["dequant_c"])
    if form.rule is None:
        assert "x" not in vector, f"{name} quantizes nothing"
        return
    if "x" in vector or "scale" in vector:
        x = vector["x"] if "x" in vector else (vector["weights"] * vector["scale"]).astype(np.float32)
        with may_drop(name, shape):
            np.testing.assert_array_equal(form.quantize(x, **layout), vector["packed"], strict=True)


def zeros(vector: Vector) -> None:
    """Rows of zeros, which ik_llama.cpp makes rows of ones with scale 0."""
    form = FORMATS[str(vector["format"])]
    assert not vector["x"].any()
    assert not vector["weights"].any()
    np.testing.assert_array_equal(form.quantize(vector["x"]), vector["packed"], strict=True)
    codes, scale = form.unpack(vector["packed"], vector["x"].shape)
    assert np.all(codes == 1)
    assert not np.any(scale)
    np.testing.assert_array_equal(form.pack(codes, scale), vector["packed"], strict=True)
    assert len(np.unique(vector["dequant_c"])) == 1


def i2s_product(vector: Vector) -> None:
    """The weights of a product in the three builds of I2_S, and the exact product."""
    assert vector["format"] == "i2_s_matmul"
    weights, acts = vector["weights"].astype(np.int32), vector["acts"].astype(np.int32)
    for name, key in (("i2_s_x86", "packed"), ("i2_s_x86_r4", "packed_r4"), ("i2_s_arm", "packed_arm")):
        packed = FORMATS[name].pack(vector["weights"], vector["scale"])
        np.testing.assert_array_equal(packed, vector[key], strict=True)
        codes, scale = FORMATS[name].unpack(vector[key], weights.shape)
        np.testing.assert_array_equal(codes, vector["weights"], strict=True)
        assert scale == vector["scale"]
    np.testing.assert_array_equal(acts @ weights.T, vector["ternary_exact"])
    np.testing.assert_array_equal(acts @ (weights + 1).T, vector["raw_exact"])
    if "x" in vector:
        largest = np.abs(vector["x"]).max(axis=1)
        scale = (127 / np.maximum(largest.astype(np.float64), 1e-5)).astype(np.float32)
        np.testing.assert_array_equal(np.rint(vector["x"] * scale[:, np.newaxis]), acts)
        np.testing.assert_array_equal(scale, vector["act_scale"])


def tq_product(vector: Vector) -> None:
    """The weights of a product in a format of blocks, and the product in float64."""
    form = FORMATS[str(vector["format"]).removesuffix("_matmul")]
    packed = form.quantize(vector["w_float"])
    np.testing.assert_array_equal(packed, vector["packed"], strict=True)
    codes, scale = form.unpack(packed, vector["w_float"].shape)
    weights, x = codes * np.repeat(scale, form.group, axis=1).astype(np.float64), vector["x"].astype(np.float64)
    # Error bound of a sum of K products in float64, in any order.
    bound = x.shape[1] * np.finfo(np.float64).eps * (np.abs(x) @ np.abs(weights).T)
    assert np.all(np.abs(x @ weights.T - vector["ref_f64"]) <= bound)


def by_field(vector: Vector) -> None:
    """Fields with scales and offsets beside them: codes, bytes, weights, and the product in float64."""
    name = str(vector["format"])
    form: Any = FORMATS[name]
    if name == "mlx_q2":
        layout = {"group_size": int(vector["group_size"])}
        offsets = {"scales": vector["scales"], "biases": vector["biases"]}
        values = form.dequantize_affine(vector["packed"], vector["scales"], vector["biases"])
    else:
        layout = {"block_size": int(vector["block_size"])}
        offsets = {"zero_points": vector["zero_points"]}
        columns = vector["weights"].shape[1]
        values = form.dequantize_affine(vector["packed"], vector["scales"], vector["zero_points"], columns)
        points = form.with_block_size(**layout).zero_points(vector["weights"].shape, vector["zero_points"].dtype)
        np.testing.assert_array_equal(points, vector["zero_points"].reshape(points.shape), strict=True)
    np.testing.assert_array_equal(values, vector["dequant_c"])
    codes, scale = form.unpack(vector["packed"], vector["weights"].shape, **offsets, **layout)
    np.testing.assert_array_equal(codes, vector["weights"], strict=True)
    np.testing.assert_array_equal(form.pack(codes, scale, **layout), vector["packed"], strict=True)
    if "acts" not in vector:
        return
    acts, weights = vector["acts"].astype(np.float64), values.reshape(-1, values.shape[-1]).astype(np.float64)
    bound = acts.shape[1] * np.finfo(np.float64).eps * (np.abs(acts) @ np.abs(weights).T)
    assert np.all(np.abs(acts @ weights.T - vector["ref_f64"]) <= bound)


def q2_0_product(vector: Vector) -> None:
    """The weights of a product in Q2_0, and the product with activations in blocks of 32 int8 with a float16 scale."""
    packed = FORMATS["q2_0"].pack(vector["weights"], vector["scales"])
    np.testing.assert_array_equal(packed, vector["packed"], strict=True)
    codes, scale = FORMATS["q2_0"].unpack(packed, vector["weights"].shape)
    np.testing.assert_array_equal(codes, vector["weights"], strict=True)
    weights = codes * np.repeat(scale, 64, axis=1).astype(np.float64)
    blocks = vector["q8_0"].reshape(len(vector["acts"]), -1, 34)
    steps = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float64)
    stored = (blocks[..., 2:].view(np.int8) * steps).reshape(len(blocks), -1)
    for acts, expected in ((vector["acts"].astype(np.float64), "ref_f64"), (stored, "ref_q8_f64")):
        bound = acts.shape[1] * np.finfo(np.float64).eps * (np.abs(acts) @ np.abs(weights).T)
        assert np.all(np.abs(acts @ weights.T - vector[expected]) <= bound)


READERS: dict[str, Callable[[Vector], None]] = {
    "mm_i2s_*": i2s_product,
    "mm_tq1_0_*": tq_product,
    "mm_tq2_0_*": tq_product,
    "mm_q2_0_*": q2_0_product,
    "mlx_t_*": by_field,
    "ort_*": by_field,
    "iq1_bn_[!z]*": partial(packer, scaled=False),
    "iq2_bn_[!rz]*": partial(packer, scaled=False),
    "iq2_bn_r[ao]*": partial(packer, scaled=False),
    "iq*_zero": zeros,
}
"""What reads the files with matching names; `packer` reads all others."""


@pytest.mark.parametrize("stem", FILES)
def test_golden_file(stem: str) -> None:
    readers = [reader for glob, reader in READERS.items() if fnmatchcase(stem, glob)] or [packer]
    assert len(readers) == 1, f"{len(readers)} lines of READERS are for suites/golden/{stem}"
    vector = Vector(stem)
    readers[0](vector)
    assert not vector.unread()


@pytest.mark.parametrize("glob", READERS)
def test_each_line_of_the_readers_has_files(glob: str) -> None:
    assert any(fnmatchcase(stem, glob) for stem in FILES)
    assert any(not fnmatchcase(stem, glob) for stem in FILES)
