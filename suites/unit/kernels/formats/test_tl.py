"""TL1 and TL2: layouts written for one weight at a time, published layouts, and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import FORMATS, NonFiniteWarning
from tritmark.kernels.formats.tl1 import TL1_FORMAT
from tritmark.kernels.formats.tl2 import TL2_FORMAT
from tritmark.kernels.formats.tl_layout import TL, Layout
from tritmark.kernels.weights.packed import PackedWeights

BOTH = pytest.mark.parametrize("form", [TL1_FORMAT, TL2_FORMAT], ids=["tl1", "tl2"])
Shape = tuple[int, int]


def ternary(shape: Shape, seed: int = 0) -> npt.NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-1, 2, shape, np.int8)


def refused(call: Callable[[], object]) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return caught.value


def tl1_one_by_one(codes: npt.NDArray[np.int8], layout: Layout) -> npt.NDArray[np.uint8]:
    """TL1 as nested loops, a byte at a time."""
    (N, K), (BM, BK, bm), by = codes.shape, layout, 256 // layout.bm
    out = [
        sum((3 * (int(codes[n, k + c]) + 1) + int(codes[n, k + c + 1]) + 1) << (4 - 2 * c) for c in (0, 2))
        for tile in range(0, N, BM)
        for column in range(0, K, BK)
        for rows in range(tile, tile + BM, bm)
        for block in range(column, column + BK, by)
        for sixteen in range(rows, rows + bm, 16)
        for k in range(block, block + by, 4)
        for n in range(sixteen, sixteen + 16)
    ]
    return np.array(out, np.uint8)


def tl2_one_by_one(codes: npt.NDArray[np.int8], layout: Layout) -> npt.NDArray[np.uint8]:
    """TL2 as nested loops; its size with integers rounded down."""
    (N, K), (BM, BK, _) = codes.shape, layout
    tripled = K - K % BK
    order = [group * 8 + row for group in (0, 2, 1, 3) for row in range(8)]

    def value(n: int, k: int) -> int:
        return 9 * int(codes[n, k]) + 3 * int(codes[n, k + 1]) + int(codes[n, k + 2])

    out, words = [], []
    for tile in range(0, N, BM):
        for column in range(0, tripled, BK):
            for rows in range(tile, tile + BM, 32):
                for k in range(column, column + BK, 6):
                    out += [abs(value(rows + n, k)) << 4 | abs(value(rows + n, k + 3)) for n in order]
                for k in range(column, column + BK, 24):
                    for row in range(16):
                        bits = [
                            (value(rows + row + 16 * h, k + 3 * t) < 0) << (15 - 2 * t - h)
                            for t in range(8)
                            for h in range(2)
                        ]
                        words += [sum(bits) & 255, sum(bits) >> 8]
    out += words
    for tile in range(0, N, BM):
        for column in range(tripled, K, 32):
            for rows in range(tile, tile + BM, 32):
                for k in range(column, column + 32, 4):
                    fields = 3 * (codes[:, k : k + 4 : 2] + 1) + codes[:, k + 1 : k + 4 : 2] + 1
                    out += [int(fields[rows + n, 0]) << 4 | int(fields[rows + n, 1]) for n in order]
    size = (K - 256) * N // 3 * 5 // 8 + 256 * N // 2 * 4 // 8
    return np.array(out + [0] * (size - len(out)), np.uint8)


@given(
    st.sampled_from([16, 32, 64]),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 2),
    st.integers(1, 2),
    st.booleans(),
)
def test_tl1_is_its_nest_of_loops(bm: int, rows: int, blocks: int, down: int, across: int, default: bool) -> None:
    layout = Layout(rows * bm, blocks * (256 // bm), bm)
    shape = (down * layout.BM, across * layout.BK)
    options: dict[str, Any] = layout._asdict()
    if default:
        shape, options = (32 * rows * down, 8 * blocks * across), {}
        layout = TL1_FORMAT.layout("", shape)
    codes = ternary(shape)
    packed = TL1_FORMAT.pack(codes, 1.0, **options)
    np.testing.assert_array_equal(packed, tl1_one_by_one(codes, layout), strict=True)
    np.testing.assert_array_equal(TL1_FORMAT.unpack(packed, shape, **options)[0], codes, strict=True)


@given(st.integers(1, 2), st.integers(1, 9), st.integers(0, 3), st.integers(1, 2), st.integers(0, 8), st.booleans())
def test_tl2_is_its_nests_of_loops(rows: int, wide: int, across: int, down: int, paired: int, default: bool) -> None:
    layout = Layout(32 * rows, 24 * wide, 32)
    columns = 32 * paired % layout.BK
    shape = (down * layout.BM, across * layout.BK + (columns if columns % 32 == 0 else 0))
    options: dict[str, Any] = layout._asdict()
    if default or not shape[1]:
        shape, options = (32 * rows * down, 32 * (paired + 1)), {}
        layout = TL2_FORMAT.layout("", shape)
    codes = ternary(shape)
    packed = TL2_FORMAT.pack(codes, 1.0, **options)
    np.testing.assert_array_equal(packed, tl2_one_by_one(codes, layout), strict=True)
    np.testing.assert_array_equal(TL2_FORMAT.unpack(packed, shape, **options)[0], codes, strict=True)


@BOTH
def test_published_layouts_are_taken_by_name_and_by_shape(form: TL) -> None:
    for name, published in form.presets.items():
        for shape, layout in published.items():
            if form.unfit(layout):
                assert (form.name, name, shape) == ("tl2", "bitnet_b1_58-large", (4096, 1536))
                assert form.layout("", shape) == Layout(256, 96, 32)
                continue
            assert form.layout("", shape) == layout
            assert form.laid_out("", {"preset": name}).check_shape("", "", shape) == shape
            assert form.holds(shape)
    shape, layout = (1536, 1536), form.presets["bitnet_b1_58-large"][1536, 1536]
    codes = ternary(shape)
    packed = form.pack(codes, 1.0)
    np.testing.assert_array_equal(packed, form.pack(codes, 1.0, preset="bitnet_b1_58-large"))
    np.testing.assert_array_equal(packed, form.pack(codes, 1.0, **layout._asdict()))
    assert not np.array_equal(packed, form.pack(codes, 1.0, BM=256, BK=96, bm=32))


def test_a_shape_is_published_once() -> None:
    for form in (TL1_FORMAT, TL2_FORMAT):
        shapes = [shape for published in form.presets.values() for shape in published]
        assert len(shapes) == len(set(shapes)) == 10


def test_the_rule_follows_from_the_shape() -> None:
    assert TL1_FORMAT.layout("", (2560, 6912)) == Layout(256, 128, 32)
    assert TL1_FORMAT.layout("", (96, 72)) == Layout(32, 8, 32)
    assert TL2_FORMAT.layout("", (2560, 6912)) == Layout(256, 96, 32)
    assert TL2_FORMAT.layout("", (192, 32)) == Layout(64, 96, 32)


@pytest.mark.parametrize(
    ("name", "options", "argument"),
    [
        ("tl1", {"BM": 64}, "layout options"),
        ("tl1", {"BM": 64, "BK": 64, "bm": 32, "preset": "bitnet_b1_58-3B"}, "layout options"),
        ("tl1", {"BM": 64, "BK": 64, "bm": 48}, "layout options"),
        ("tl1", {"BM": 64, "BK": 4, "bm": 32}, "layout options"),
        ("tl1", {"BM": 96, "BK": 64, "bm": 64}, "layout options"),
        ("tl1", {"BM": 64.0, "BK": 64, "bm": 32}, "BM"),
        ("tl1", {"BM": 64, "BK": True, "bm": 32}, "BK"),
        ("tl1", {"BM": 64, "BK": 64, "bm": 0}, "bm"),
        ("tl1", {"preset": "bitnet_b1_58-3b"}, "preset"),
        ("tl1", {"preset": 3}, "preset"),
        ("tl1", {"preset": "bitnet_b1_58-3B"}, "preset"),
        ("tl1", {"block": 32}, "layout options"),
        ("tl2", {"BM": 128, "BK": 96, "bm": 64}, "layout options"),
        ("tl2", {"BM": 128, "BK": 64, "bm": 32}, "layout options"),
        ("tile64", {"BM": 128}, "BM"),
        ("i2_s_x86", {"preset": "bitnet_b1_58-3B"}, "preset"),
    ],
)
def test_layout_options_that_are_none_are_refused(name: str, options: dict[str, Any], argument: str) -> None:
    form, shape = FORMATS[name], (128, 384)
    for call in (
        lambda: form.pack(ternary(shape), 1.0, **options),
        lambda: form.unpack(np.zeros(form.packed_shape(shape), np.uint8), shape, **options),
        lambda: (form.rule and form.quantize(np.ones(shape, np.float32), **options)) or form.laid_out("", options),
    ):
        assert refused(call).argument == argument


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("tl1", (48, 64), {}),
        ("tl1", (64, 60), {}),
        ("tl1", (96, 128), {"BM": 64, "BK": 64, "bm": 32}),
        ("tl2", (128, 336), {}),
        ("tl2", (128, 120), {"BM": 128, "BK": 96, "bm": 32}),
        ("tl2", (128, 384 + 288), {"BM": 128, "BK": 384, "bm": 32}),  # the original's size cannot hold 288
    ],
)
def test_shapes_that_are_no_whole_tiles_are_refused(name: str, shape: Shape, options: dict[str, Any]) -> None:
    assert refused(lambda: FORMATS[name].pack(ternary(shape), 1.0, **options)).argument == "codes"


def test_the_most_columns_of_pairs_fill_the_originals_size() -> None:
    form, layout = TL2_FORMAT, Layout(32, 384, 32)
    codes = ternary((32, 384 + 256))
    packed = form.pack(codes, 1.0, **layout._asdict())
    np.testing.assert_array_equal(packed, tl2_one_by_one(codes, layout), strict=True)
    assert packed.size == 32 * (384 * 5 // 24 + 256 // 4)


@BOTH
def test_the_rule_is_the_sign_but_below_float32_1e_6(form: TL) -> None:
    edge = np.float32(1e-6)
    x = np.zeros((32, 32), np.float32)
    x[0, :6] = edge, -edge, np.nextafter(edge, np.float32(0)), -3e38, -0.0, 1e-45
    assert form.rule is not None
    codes, scale = form.rule(x)
    assert codes[0, :7].tolist() == [1, -1, 0, -1, 0, 0, 0]
    assert scale == np.float32(3e38)
    np.testing.assert_array_equal(form.quantize(x), form.pack(codes, scale))


def test_a_nan_takes_its_neighbours_with_it() -> None:
    """The original casts a pair or triple with a NaN to uint8, which gives 0 on x86: two times -1, or three 0."""
    x = np.ones((32, 128), np.float32)
    x[3, 5] = x[3, 101] = np.nan
    expected = np.ones(x.shape, np.int8)
    expected[3, 4:6] = expected[3, 100:102] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NonFiniteWarning)
        np.testing.assert_array_equal(TL1_FORMAT.unpack(TL1_FORMAT.quantize(x), x.shape)[0], expected)
        expected[3, 3:6] = 0
        np.testing.assert_array_equal(TL2_FORMAT.unpack(TL2_FORMAT.quantize(x), x.shape)[0], expected)


@BOTH
def test_the_scale_is_kept_beside_the_bytes(form: TL) -> None:
    codes = ternary((64, 96))
    data = form.pack(codes, 0.5)
    weights = PackedWeights.from_bytes(data, form.name, codes.shape, 0.5)
    np.testing.assert_array_equal(weights.dequantize(), codes * np.float32(0.5))
    np.testing.assert_array_equal(weights.packed_as("tile64"), FORMATS["tile64"].pack(codes, 0.5))
    assert refused(lambda: PackedWeights.from_bytes(data, form.name, codes.shape)).argument == "scale"
    tile64 = weights.packed_as("tile64")
    assert refused(lambda: PackedWeights.from_bytes(tile64, "tile64", codes.shape, 0.5)).argument == "scale"
    assert refused(lambda: form.pack(codes, -1.0)).argument == "scale"
