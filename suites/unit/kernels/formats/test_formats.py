"""FORMATS: layouts against their formulas, round trips, memory layouts of arguments, and refusals."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import BUILT_IN, FORMATS, Format, NonFiniteWarning, TailDroppedWarning

pytestmark = pytest.mark.interpreter

Codes = npt.NDArray[np.int8]
Shape = tuple[int, int]

every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
SEQUENTIAL = {
    "ort_q2": 128,
    "mlx_q2": 128,
    "compressed_tensors_2": 16,
    "bitnet_rs_32": 32,
    "bitnet_rs_32_signed": 32,
    "qk256": 256,
}
"""Rows of these formats are padded to this multiple."""
TILES = {f"tile64_g{group}": group for group in (32, 64, 128, 256)}
"""Groups of the formats of tiles with a scale for each."""
ROWS = tuple(f"row16_g{group}" for group in (32, 64, 128, 256))
"""The formats of rows of words with such scales."""
PLACED = (
    *("i2_s_x86", "i2_s_arm", "i2_s_x86_r4", "qk256_i2_s", "tq2_0", "hf_pack", "gpu_int2", "iq2_bn", "iq2_bn_r4"),
    *("q2_0", "pq2_0", "row16", *ROWS, "tile64", *TILES, *SEQUENTIAL, "ort_q2_sm80", "gptq_2"),
)
"""Formats of fields with a formula in `place`."""
DIGITS = ("tq1_0", "ptq1_0", "iq1_bn", "tile80")
"""Formats whose bytes are numbers in base 3."""
PAIRS = ("tl1", "tl2")
"""Formats whose codes are numbers of pairs and triples of weights: see test_tl.py."""
FIELDS = [FORMATS[name] for name in PLACED]
RESERVING = [form for form in FIELDS if len(form.codes) == 3]
every_format_of_fields = pytest.mark.parametrize("form", FIELDS, ids=[form.name for form in FIELDS])
every_format_with_a_reserved_field = pytest.mark.parametrize("form", RESERVING, ids=[form.name for form in RESERVING])
HALF = [name for name, form in FORMATS.items() if (form.scale_dtype, form.scale_per) == ("float16", "group")]
half_scales = pytest.mark.parametrize("name", HALF)


def ternary(shape: Shape, seed: int = 0) -> Codes:
    return np.random.default_rng(seed).integers(-1, 2, shape, np.int8)


def codes_for(form: Format, shape: Shape, seed: int = 0) -> Codes:
    if form.limit:
        return form.sample(shape, np.random.default_rng(seed))
    return np.random.default_rng(seed).choice(np.array(form.codes, np.int8), shape)


def kept_scale(form: Format, scale: Any) -> Any:
    """The scale that unpack returns: 1 if the bytes have none."""
    return scale if form.scale_stored else np.ones_like(scale)[()]


def scale_for(form: Format, shape: Shape, seed: int = 0) -> Any:
    if form.scale_per == "tensor":
        return np.float32(np.random.default_rng(seed).random())
    exact_in_float16 = np.random.default_rng(seed).integers(-2048, 2048, form.scale_shape(shape)) / 64
    return exact_in_float16.astype(np.float32)


def pack(form: Format, codes: Codes, scale: Any) -> npt.NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TailDroppedWarning)
        return form.pack(codes, scale)


def shapes(form: Format, largest: int = 200) -> st.SearchStrategy[Shape]:
    return st.tuples(
        st.integers(1, -(-largest // form.row_multiple)).map(lambda n: n * form.row_multiple),
        st.integers(1, -(-largest // form.column_multiple)).map(lambda k: k * form.column_multiple),
    )


def place(name: str, n: int, k: int, shape: Shape) -> tuple[int, int] | None:
    """Byte and shift of weight (n, k) by the formulas that define the layouts; None for a weight that is dropped."""
    flat = n * shape[1] + k
    if name in ("i2_s_x86", "i2_s_arm"):
        lane = 32 if name == "i2_s_x86" else 16
        unit, j = divmod(flat, 4 * lane)
        return None if unit == shape[0] * shape[1] // (4 * lane) else (unit * lane + j % lane, 6 - 2 * (j // lane))
    if name == "i2_s_x86_r4":
        return n // 4 * shape[1] + k, 6 - 2 * (n % 4)
    if name == "tq2_0":
        block, e = divmod(flat, 256)
        return block * 66 + e // 128 * 32 + e % 32, e % 128 // 32 * 2
    if name == "qk256_i2_s":
        return place("i2_s_x86", n, k, shape)
    if name == "hf_pack":
        rows = -(-shape[0] // 4)
        return n % rows * shape[1] + k, n // rows * 2
    if name == "gpu_int2":
        word = n // 16 * shape[1] // 32 * 32 + k // 32 * 32 + n % 16 // 8 * 16 + k % 32 // 16 * 8 + n % 8
        return word * 4 + k % 4, k % 16 // 4 * 2
    if name in SEQUENTIAL:
        return n * -(-shape[1] // SEQUENTIAL[name]) * SEQUENTIAL[name] // 4 + k // 4, k % 4 * 2
    if name == "iq2_bn":
        return n * (4 + shape[1] // 4) + 4 + k // 64 * 16 + k % 16, k % 64 // 16 * 2
    if name in ("q2_0", "pq2_0"):
        group = 64 if name == "q2_0" else 128
        block, e = divmod(flat, group)
        return block * (group // 4 + 2) + 2 + e // 4, e % 4 * 2
    if name == "iq2_bn_r4":
        block, e = divmod(k, 64)
        return n // 4 * (shape[1] + 16) + 16 + block * 64 + e // 16 * 16 + n % 4 * 4 + e % 4, e % 16 // 4 * 2
    if name == "gptq_2":
        return (k // 16 * shape[0] + n) * 4 + k % 16 // 4, k % 4 * 2
    if name == "ort_q2_sm80":
        words = n // 8 * shape[1] // 2 + k // 64 * 32 + n % 8 * 4 + k % 8 // 2
        return words * 4 + k % 2 * 2 + k % 64 // 32, k % 32 // 8 * 2
    if name in TILES:
        group = TILES[name]
        start = (n // 64 * (shape[1] // group) + k // group) * (128 + 16 * group)
        return start + 128 + k % group // 4 * 64 + n % 16 * 4 + k % 4, n % 64 // 16 * 2
    if name.startswith("row16"):
        return (n * -(-shape[1] // 64) * 4 + k // 16) * 4 + k % 4, k % 16 // 4 * 2
    groups = (shape[1] + 3) // 4
    return (n // 64 * groups + k // 4) * 64 + n % 16 * 4 + k % 4, n % 64 // 16 * 2


def test_every_format_has_a_formula_or_vectors() -> None:
    golden = [path.stem for path in (Path(__file__).parents[3] / "golden").glob("*.npz")]
    for name in BUILT_IN:
        assert name in (*PLACED, *DIGITS, *PAIRS) or any(stem.startswith(f"{name}_") for stem in golden), name


def test_formats_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        FORMATS["mine"] = FORMATS["tile64"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        FORMATS["tile64"].block = 1  # type: ignore[misc]


@every_format
def test_description(form: Format) -> None:
    assert FORMATS[form.name] is form
    assert form.codes == tuple(sorted(form.codes))
    assert form.summary
    assert form.source
    assert form.packed_bytes((128, 512)) == pack(form, codes_for(form, (128, 512)), 1.0).size


def test_bits_per_weight_count_scales_and_padding() -> None:
    assert FORMATS["i2_s_x86"].bits_per_weight((4, 128)) == 2 + 32 * 8 / 512
    assert FORMATS["tq1_0"].bits_per_weight((3, 512)) == 54 * 8 / 256
    assert FORMATS["tq2_0"].bits_per_weight((3, 512)) == 66 * 8 / 256
    assert FORMATS["q2_0"].bits_per_weight((3, 512)) == 18 * 8 / 64
    assert FORMATS["pq2_0"].bits_per_weight((3, 512)) == 34 * 8 / 128
    assert FORMATS["ptq1_0"].bits_per_weight((3, 512)) == 28 * 8 / 128
    assert FORMATS["iq2_bn_r4"].bits_per_weight((4, 512)) == 2 + 32 / 512
    assert FORMATS["tile64"].bits_per_weight((64, 64)) == 2 + 64 * 8 / 4096
    assert FORMATS["tile64"].bits_per_weight((1, 1)) == 8 * (64 + 64)
    assert [FORMATS[name].bits_per_weight((64, 512)) for name in TILES] == [2.5, 2.25, 2.125, 2.0625]
    assert FORMATS["row16"].bits_per_weight((64, 64)) == 2 + 64 * 8 / 4096
    assert FORMATS["row16"].bits_per_weight((3, 65)) == 8 * (3 * 32 + 64) / 195
    assert FORMATS["row16_g128"].bits_per_weight((8, 512)) == 2 + 16 / 128
    assert FORMATS["row16_g32"].bits_per_weight((3, 96)) == 8 * (3 * 32 + 3 * 16) / 288


def test_a_format_says_whose_weights_share_a_scale() -> None:
    tile64, tq2 = FORMATS["tile64"], FORMATS["tq2_0"]
    assert (tile64.scale_shape((3, 512)), tq2.scale_shape((3, 512))) == ((), (3, 2))
    assert dataclasses.replace(tile64, scale_per="row").scale_shape((3, 512)) == (3,)
    assert tile64.refusal(FORMATS["i2_s_x86"], (5, 7)) is None
    assert FORMATS["i2_s_x86"].refusal(tile64, (5, 7)) == "i2_s_x86 cannot hold weights of shape (5, 7)"
    assert tq2.refusal(tile64, (1, 256)) == "tile64 has one scale, tq2_0 a scale for each group of 256"
    assert (
        tile64.refusal(dataclasses.replace(tile64, name="four", codes=(-2, -1, 0, 1)), (1, 1))
        == "four has codes that tile64 cannot store"
    )


def test_block_and_scale_of_each_format() -> None:
    expected = {
        "i2_s_x86": (128, "tensor"),
        "i2_s_arm": (64, "tensor"),
        "i2_s_x86_r4": (4, "tensor"),
        "tq1_0": (256, "group"),
        "tq2_0": (256, "group"),
        "tile64": (256, "tensor"),
        "row16": (16, "tensor"),
        "row16_g64": (16, "group"),
        "hf_pack": (4, "tensor"),
        "gpu_int2": (512, "tensor"),
        "ort_q2": (128, "group"),
        "ort_q2_sm80": (128, "group"),
        "bitnet_rs_32": (32, "group"),
        "bitnet_rs_32_signed": (32, "group"),
        "qk256": (256, "tensor"),
        "qk256_i2_s": (128, "tensor"),
        "iq1_bn": (64, "row"),
        "iq2_bn": (64, "row"),
        "tl1": (256, "tensor"),
        "tl2": (768, "tensor"),
        "iq2_bn_r4": (256, "row"),
        "q2_0": (64, "group"),
        "pq2_0": (128, "group"),
        "ptq1_0": (128, "group"),
        "tile80": (320, "tensor"),
        **{name: (64 * group, "group") for name, group in TILES.items()},
    }
    assert {name: (FORMATS[name].block, FORMATS[name].scale_per) for name in expected} == expected


@every_format_of_fields
@given(st.data())
def test_fields_are_where_the_formula_puts_them(form: Format, data: st.DataObject) -> None:
    shape = data.draw(shapes(form, 40))
    codes = codes_for(form, shape, data.draw(st.integers(0, 99)))
    packed = pack(form, codes, 0.0).ravel()
    if form.name == "ort_q2":
        codes = np.pad(codes, ((0, 0), (0, -shape[1] % 128)))
    if form.name == "tile64":
        codes = np.pad(codes, ((0, -shape[0] % 64), (0, -shape[1] % 4)))
    if form.name in TILES:
        codes = np.pad(codes, ((0, -shape[0] % 64), (0, 0)))
    if form.name.startswith("row16"):
        codes = np.pad(codes, ((0, 0), (0, -shape[1] % 64)))
    expected = np.zeros_like(packed)
    for (n, k), w in np.ndenumerate(codes):
        where = place(form.name, n, k, codes.shape)
        if where:
            expected[where[0]] |= form.fields[form.codes.index(w)] << where[1]
    np.testing.assert_array_equal(packed, expected)


@every_format
@given(st.data())
def test_round_trip(form: Format, data: st.DataObject) -> None:
    shape = data.draw(shapes(form))
    seed = data.draw(st.integers(0, 2**32))
    codes, scale = codes_for(form, shape, seed), scale_for(form, shape, seed)
    packed = pack(form, codes, scale)
    assert packed.shape == form.packed_shape(shape)
    dropped = form.dropped(shape)
    expected = codes.copy()
    expected.ravel()[codes.size - dropped :] = -1
    for given_bytes in (packed, packed.ravel(), np.repeat(packed.ravel(), 2)[::2]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if dropped else "error", TailDroppedWarning)
            found, found_scale = form.unpack(given_bytes, shape)
        np.testing.assert_array_equal(found, expected, strict=True)
        np.testing.assert_array_equal(found_scale, kept_scale(form, scale), strict=True)
    alone = form.stored_scales(packed.ravel(), shape)
    np.testing.assert_array_equal(alone, kept_scale(form, scale), strict=True)


VIEWS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "fortran": np.asfortranarray,
    "columns apart": lambda a: np.repeat(a, 3, axis=1)[:, ::3],
    "rows apart": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "inside a larger one": lambda a: np.pad(a, 1)[1:-1, 1:-1],
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
}


@every_format
@given(st.data())
def test_a_view_packs_as_its_copy_and_is_left_alone(form: Format, data: st.DataObject) -> None:
    shape = data.draw(shapes(form))
    codes, scale = codes_for(form, shape), scale_for(form, shape)
    packed = pack(form, codes, scale)
    for name, view in VIEWS.items():
        seen = view(codes)
        seen.flags.writeable = False
        np.testing.assert_array_equal(pack(form, seen, scale), packed, name, strict=True)
        np.testing.assert_array_equal(seen, codes, name)
    if form.rule and not form.dropped(shape):
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        quantized = form.quantize(x)
        for name, view in VIEWS.items():
            seen = view(x)
            seen.flags.writeable = False
            np.testing.assert_array_equal(form.quantize(seen), quantized, name, strict=True)
            np.testing.assert_array_equal(seen, x, name)


@pytest.mark.long
@every_format
@pytest.mark.parametrize("call", ["pack", "unpack"])
@pytest.mark.parametrize("shape", [(1024, 2048), (4, 2**20)])
def test_temporaries_stay_within_one_and_a_half_times_the_codes(form: Format, shape: Shape, call: str) -> None:
    shape = (-(-shape[0] // form.row_multiple) * form.row_multiple, shape[1])
    codes = np.asfortranarray(codes_for(form, shape))
    packed = pack(form, codes, 1.0)
    tracemalloc.start()
    try:
        result = form.pack(codes, 1.0) if call == "pack" else form.unpack(packed, codes.shape)[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes <= 1.5 * codes.nbytes


def refused(call: Callable[[], object]) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return caught.value


@every_format
@pytest.mark.parametrize("code", [-128, -2, 3, 127])
def test_an_illegal_code_is_refused_at_its_index(form: Format, code: int) -> None:
    codes = codes_for(form, (64, 256))
    codes[17, 3] = code
    codes[40, 0] = 3
    error = refused(lambda: form.pack(codes, 1.0))
    where, first = f"formats.{form.name}.pack", "3 at (40, 0)" if code in form.codes else f"{code} at (17, 3)"
    assert (error.op, error.argument, error.found) == (where, "codes", first)
    assert error.legal == ", ".join(map(str, form.codes))


@every_format_with_a_reserved_field
def test_the_reserved_field_is_refused_at_its_index(form: Format) -> None:
    shape, (reserved,) = (80, 256), {0, 1, 2, 3} - set(form.fields)
    packed = form.pack(ternary(shape), 1.0)
    for n, k in [(66, 2), (66, 1), (1, 255)]:
        where = place(form.name, n, k, shape)
        assert where
        packed.reshape(-1)[where[0]] &= ~(3 << where[1]) & 0xFF
        packed.reshape(-1)[where[0]] |= reserved << where[1]
        error = refused(lambda: form.unpack(packed, shape))
        assert (error.op, error.argument) == (f"formats.{form.name}.unpack", "packed")
        assert error.found == f"field {reserved} for the weight at {(n, k)}"
        assert error.legal == f"{', '.join(map(str, form.fields))} for -1, 0, 1"


@every_format
@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([[0]], "a list"),
        (ternary((4, 256)).astype(np.int16), "of dtype int16"),
        (ternary((4, 256)).astype(bool), "of dtype bool"),
        (np.zeros(256, np.int8), "of shape (256,)"),
        (np.zeros((1, 1, 4, 256), np.int8), "of shape (1, 1, 4, 256)"),
        (np.zeros((0, 4, 256), np.int8), "of shape (0, 4, 256)"),
        (np.zeros((0, 256), np.int8), "of shape (0, 256)"),
        (np.zeros((4, 0), np.int8), "of shape (4, 0)"),
    ],
)
def test_wrong_codes_are_refused(form: Format, codes: Any, found: str) -> None:
    error = refused(lambda: form.pack(codes, 1.0))
    assert (error.argument, error.found) == ("codes", found)


@every_format
@pytest.mark.parametrize(
    "scale", [None, "1", True, 1j, np.ones(1, np.float32), np.ones((2, 2), np.float32), np.array(1), [1.0]]
)
def test_a_scale_of_the_wrong_kind_is_refused(form: Format, scale: Any) -> None:
    assert refused(lambda: form.pack(codes_for(form, (64, 256)), scale)).argument == "scale"


@pytest.mark.parametrize("name", ["i2_s_x86", "i2_s_arm", "i2_s_x86_r4", "tile64", "tile80", "row16"])
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 1e39, -1.0, np.float32(np.nan)])
def test_a_tensor_scale_must_be_finite_and_not_negative(name: str, scale: float) -> None:
    form, codes = FORMATS[name], ternary((64, 128))
    error = refused(lambda: form.pack(codes, scale))
    assert (error.op, error.argument, error.legal) == (f"formats.{name}.pack", "scale", "a finite float32 >= 0")
    packed = form.pack(codes, 1.0)
    at = packed.size - {"tile64": 64, "tile80": 64, "row16": 64}.get(name, 32)
    with np.errstate(over="ignore"):
        packed[at : at + 4] = np.array([scale], "<f4").view(np.uint8)
    error = refused(lambda: form.unpack(packed, (64, 128)))
    assert (error.op, error.argument) == (f"formats.{name}.unpack", "scale")


@half_scales
def test_block_scales_are_float16_inside(name: str) -> None:
    form = FORMATS[name]
    shape = (2, 2 * form.group)
    codes = codes_for(form, shape)
    scales = np.array([[1 / 3, 65519.996], [1e-9, 2.0**-24]], np.float32)
    _, found = form.unpack(form.pack(codes, scales), shape)
    np.testing.assert_array_equal(found, np.array([[0.33325195, 65504], [0, 2.0**-24]], np.float32), strict=True)
    error = refused(lambda: form.pack(codes, np.array([[1, 2], [65520, np.inf]], np.float32)))
    assert (error.argument, error.found, error.legal) == ("scale", "65520.0 at (1, 0)", "finite as float16")


@half_scales
def test_block_scales_that_are_not_finite_are_kept(name: str) -> None:
    scales, shape = np.array([[np.inf, -np.inf], [np.nan, -np.nan]], np.float32), (2, 2 * FORMATS[name].group)
    packed = FORMATS[name].pack(codes_for(FORMATS[name], shape), scales)
    if name in ROWS:  # of both rows for each group, padded to 8 rows
        stored = packed[-32:].view("<u2").reshape(2, 8)[:, :2].T
    elif name in TILES:  # one after the other, not row by row
        stored = packed.reshape(2, -1)[:, :4].copy().view("<u2").T
    else:
        where = slice(2) if name in ("q2_0", "pq2_0") else slice(-2, None)
        stored = packed.reshape(4, -1)[:, where].copy().view("<u2")
    assert stored.ravel().tolist() == [0x7C00, 0xFC00, 0x7E00, 0xFE00]
    np.testing.assert_array_equal(FORMATS[name].unpack(packed, shape)[1], scales)


def test_scales_of_rows_are_float32_of_any_value() -> None:
    scales = np.array([np.inf, -np.nan, 1e-45, -3.4e38], np.float32)
    packed = FORMATS["iq2_bn_r4"].pack(ternary((4, 64)), scales)
    assert packed.reshape(-1)[:16].view("<u4").tolist() == [0x7F800000, 0xFFC00000, 1, scales[3:].view("<u4")[0]]
    np.testing.assert_array_equal(FORMATS["iq2_bn_r4"].unpack(packed, (4, 64))[1], scales)


@half_scales
def test_one_scale_may_stand_for_all_blocks(name: str) -> None:
    codes = codes_for(FORMATS[name], (2, 2 * FORMATS[name].group))
    expected = FORMATS[name].pack(codes, np.full((2, 2), 0.5, np.float32))
    for scale in (0.5, np.float64(0.5), np.array(0.5, np.float32)):
        np.testing.assert_array_equal(FORMATS[name].pack(codes, scale), expected)


def digit_place(n: int, k: int, columns: int) -> tuple[int, int]:
    """Byte of weight (n, k) in TQ1_0, and the power of 3 of its digit."""
    block, e = divmod(n * columns + k, 256)
    if e < 160:
        return block * 54 + e % 32, 4 - e // 32
    if e < 240:
        return block * 54 + 32 + e % 16, 4 - (e - 160) // 16
    return block * 54 + 48 + e % 4, 4 - (e - 240) // 4


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 99))
def test_digits_are_where_the_formula_of_tq1_0_puts_them(rows: int, blocks: int, seed: int) -> None:
    shape = (rows, 256 * blocks)
    codes = ternary(shape, seed)
    packed = FORMATS["tq1_0"].pack(codes, 0.0).ravel()
    values = np.zeros(packed.size, int)
    for (n, k), w in np.ndenumerate(codes):
        byte, power = digit_place(n, k, shape[1])
        values[byte] += (int(w) + 1) * 3**power
    np.testing.assert_array_equal(packed, -(-values * 256 // 243))


def digit_place_of_128(n: int, k: int, columns: int) -> tuple[int, int]:
    """The same in PTQ1_0."""
    block, e = divmod(n * columns + k, 128)
    if e < 80:
        return block * 28 + e % 16, 4 - e // 16
    if e < 120:
        return block * 28 + 16 + (e - 80) % 8, 4 - (e - 80) // 8
    return block * 28 + 24 + e % 2, 4 - (e - 120) // 2


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_digits_are_where_the_formula_of_ptq1_0_puts_them(rows: int, blocks: int, seed: int) -> None:
    shape = (rows, 128 * blocks)
    codes = ternary(shape, seed)
    packed = FORMATS["ptq1_0"].pack(codes, 0.0).ravel()
    values = np.zeros(packed.size, int)
    for (n, k), w in np.ndenumerate(codes):
        byte, power = digit_place_of_128(n, k, shape[1])
        values[byte] += (int(w) + 1) * 3**power
    np.testing.assert_array_equal(packed, -(-values * 256 // 243))


TILED = (("q2_0", "tile64_g32"), ("pq2_0", "tile64_g64"), ("tq2_0", "tile64_g128"), ("tile64_g256", "tile64_g64"))
"""Formats, and tiles with smaller groups."""


def test_weights_go_into_smaller_groups_with_their_scales_repeated() -> None:
    scale = np.array([[1.5, -2], [0.25, 4]], np.float32)
    for coarse, fine in (("pq2_0", "q2_0"), ("ptq1_0", "q2_0"), ("tq1_0", "pq2_0"), ("tq2_0", "q2_0"), *TILED):
        source, target = FORMATS[coarse], FORMATS[fine]
        shape = (2, 2 * source.group)
        assert target.refusal(source, shape) is None
        repeated = target.regrouped(scale, source)
        np.testing.assert_array_equal(repeated, np.repeat(scale, source.group // target.group, axis=1))
        assert source.refusal(target, shape) is not None
        assert target.regrouped(repeated, target) is repeated


@pytest.mark.parametrize("byte", [0, 31, 32, 47, 48, 51])
def test_bytes_that_no_digits_make_are_refused(byte: int) -> None:
    """llama.cpp writes 243 of the 256 bytes, and 81 where a byte has four digits: all decoders agree on these."""
    form, digits = FORMATS["tq1_0"], 5 if byte < 48 else 4
    packed = form.pack(ternary((3, 512)), 1.0)
    written = {-(-value * 3 ** (5 - digits) * 256 // 243) for value in range(3**digits)}
    for value in range(256):
        packed[2, 54 + byte] = value
        if value in written:
            codes, scale = form.unpack(packed, (3, 512))
            np.testing.assert_array_equal(form.pack(codes, scale), packed)
            continue
        error = refused(partial(form.unpack, packed, (3, 512)))
        assert (error.argument, error.found) == ("packed", f"{value} in byte {byte} of block 5")
        assert error.legal == f"one of the {3**digits} bytes that encode {digits} base-3 digits"


@pytest.mark.parametrize(
    ("name", "shape", "rows", "columns"),
    [
        ("i2_s_x86_r4", (6, 128), 4, 1),
        ("tq1_0", (4, 300), 1, 256),
        ("tq2_0", (4, 300), 1, 256),
        ("iq2_bn_r4", (6, 128), 4, 64),
        ("iq2_bn_r4", (4, 100), 4, 64),
        ("q2_0", (4, 100), 1, 64),
        ("pq2_0", (4, 192), 1, 128),
        *((name, (4, group + 16), 1, group) for name, group in TILES.items()),
        ("ptq1_0", (4, 192), 1, 128),
    ],
)
def test_shapes_that_the_layout_does_not_admit_are_refused(name: str, shape: Shape, rows: int, columns: int) -> None:
    form = FORMATS[name]
    calls: dict[str, Callable[[], object]] = {
        "codes": lambda: form.pack(ternary(shape), 1.0),
        "x": lambda: form.quantize(np.ones(shape, np.float32)),
        "shape": lambda: form.unpack(np.zeros(form.packed_bytes(shape), np.uint8), shape),
    }
    if form.rule is None:
        del calls["x"]
    for argument, call in calls.items():
        error = refused(call)
        assert (error.argument, error.found) == (argument, f"of shape {shape}")
        assert error.legal == f"N a multiple of {rows} and K of {columns}"


@every_format
@pytest.mark.parametrize(
    "shape", [None, 4, [64, 256], (64,), (64, 256, 1, 1), (0, 64, 256), (64, 0), (-64, -256), (64.0, 256), ("a", "b")]
)
def test_unpack_refuses_a_wrong_shape(form: Format, shape: Any) -> None:
    assert refused(lambda: form.unpack(np.zeros(4096 + 64, np.uint8), shape)).argument == "shape"


@every_format
def test_unpack_refuses_wrong_bytes(form: Format) -> None:
    shape = (64, 256)
    good = form.pack(codes_for(form, shape), 1.0)
    wrong: tuple[Any, ...] = (
        good.ravel()[:-1],
        np.append(good, np.uint8(0)),
        good.reshape(2, -1),
        good.view(np.int8),
        good.tobytes(),
        good[:0],
    )
    for bad in wrong:
        assert refused(partial(form.unpack, bad, shape)).argument == "packed"
    assert refused(lambda: form.unpack(good, (2**40, 2**40))).argument == "packed"


@pytest.mark.parametrize(("name", "block"), [("i2_s_x86", 128), ("i2_s_arm", 64)])
@pytest.mark.parametrize("extra", [1, 3, 4, 63])
def test_a_tail_is_dropped_with_a_warning_or_refused(name: str, block: int, extra: int) -> None:
    form = FORMATS[name]
    shape = (1, 2 * block + extra)
    codes = np.ones(shape, np.int8)
    with pytest.warns(TailDroppedWarning, match=f"drops the last {extra} of {codes.size} weights") as caught:
        packed = form.pack(codes, 1.0)
    assert caught[0].filename == __file__
    with pytest.warns(TailDroppedWarning):
        np.testing.assert_array_equal(form.quantize(codes.astype(np.float32)), packed)
    assert packed.size == codes.size // 4 + 32
    assert not packed[block // 2 : codes.size // 4].any()
    with pytest.warns(TailDroppedWarning):
        found, scale = form.unpack(packed, shape)
    assert scale == 1
    assert found.ravel().tolist() == [1] * (2 * block) + [-1] * extra
    calls: list[Callable[[], object]] = [
        lambda: form.pack(codes, 1.0, tail="error"),
        lambda: form.unpack(packed, shape, tail="error"),
        lambda: form.quantize(codes.astype(np.float32), tail="error"),
    ]
    for call in calls:
        error = refused(call)
        assert error.argument == "shape"
        assert f"drops the last {extra} weights" in error.found
        assert f"multiple of {block}" in error.legal


def test_bytes_in_a_dropped_tail_are_refused() -> None:
    form = FORMATS["i2_s_x86"]
    with pytest.warns(TailDroppedWarning):
        packed = form.pack(np.zeros((1, 192), np.int8), 1.0)
    packed[47] = 1
    with pytest.warns(TailDroppedWarning):
        error = refused(lambda: form.unpack(packed, (1, 192)))
    assert error.found == "with nonzero bytes from 32 to 47"


@every_format
def test_a_whole_number_of_blocks_has_no_tail(form: Format) -> None:
    codes = codes_for(form, (64, 256))
    assert form.dropped((64, 256)) == 0
    np.testing.assert_array_equal(form.pack(codes, 1.0, tail="error"), form.pack(codes, 1.0))
    assert refused(lambda: form.pack(codes, 1.0, tail="keep")).argument == "tail"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "byte"), [((65, 8), 2 * 64 * 2 - 1), ((65, 8), 128 + 4), ((64, 6), 64 + 2), ((1, 1), 1)]
)
def test_tile64_refuses_weights_in_its_padding(shape: Shape, byte: int) -> None:
    form = FORMATS["tile64"]
    packed = form.pack(ternary(shape), 1.0)
    packed[byte] ^= 0x80 | 0x40
    error = refused(lambda: form.unpack(packed, shape))
    assert (error.argument, error.legal) == ("packed", "0 in the padding")


@pytest.mark.parametrize(("name", "group"), TILES.items())
def test_tiles_refuse_weights_and_scales_in_the_padding(name: str, group: int) -> None:
    form, shape = FORMATS[name], (70, 2 * group)
    good = form.pack(ternary(shape), 1.0)
    for byte, what in ((-1, "weights"), (-16 * group + 25, "weights"), (-16 * group - 2, "scales")):
        packed = good.copy()
        packed[byte] ^= 0x80
        error = refused(partial(form.unpack, packed, shape))
        assert (error.argument, error.legal) == ("packed", "0 in the padding")
        assert error.found == f"with {what} other than 0 in the padded rows"
    packed = good.copy()
    packed[-16 * group - 128 + 2 * 5] ^= 1  # the last row's own scale
    assert np.asarray(form.unpack(packed, shape)[1])[69].tolist() == [1, 1 + 2**-10]


@given(st.data())
def test_digits_of_tile80_are_where_the_formula_puts_them(data: st.DataObject) -> None:
    """Five digits w + 1 of rows at a distance of 16, most significant first; their value v as ceil(v * 256 / 243)."""
    form = FORMATS["tile80"]
    shape = data.draw(st.tuples(st.integers(1, 170), st.integers(1, 40)))
    codes = ternary(shape, data.draw(st.integers(0, 99)))
    padded = np.pad(codes, ((0, -shape[0] % 80), (0, -shape[1] % 4))).astype(int) + 1
    values = np.zeros((padded.shape[0] // 80, padded.shape[1] // 4, 16, 4), int)
    for (n, k), digit in np.ndenumerate(padded):
        values[n // 80, k // 4, n % 16, k % 4] += digit * 3 ** (4 - n % 80 // 16)
    packed = form.pack(codes, 0.75)
    np.testing.assert_array_equal(packed[:-64], (-(-values * 256 // 243)).ravel())
    assert packed[-64:].tobytes() == np.float32(0.75).tobytes() + bytes(60)


@pytest.mark.parametrize(
    ("shape", "byte"), [((81, 8), 2 * 128 - 1), ((81, 8), 128 + 4), ((80, 6), 64 + 2), ((1, 1), 1)]
)
def test_tile80_refuses_weights_in_its_padding(shape: Shape, byte: int) -> None:
    form = FORMATS["tile80"]
    packed = form.pack(ternary(shape), 1.0)
    packed[byte] = 0
    error = refused(lambda: form.unpack(packed, shape))
    assert (error.argument, error.legal) == ("packed", "0 in the padding")


def test_tile80_refuses_bytes_that_no_digits_make() -> None:
    form = FORMATS["tile80"]
    packed = form.pack(ternary((100, 12)), 1.0)
    written = {-(-value * 256 // 243) for value in range(243)}
    for value in range(256):
        packed[7] = value
        if value in written:
            codes, scale = form.unpack(packed, (100, 12))
            np.testing.assert_array_equal(form.pack(codes, scale), packed)
            continue
        error = refused(partial(form.unpack, packed, (100, 12)))
        assert (error.argument, error.found) == ("packed", f"{value} in byte 7 of block 0")
        assert error.legal == "one of the 243 bytes that encode 5 base-3 digits"


def test_tile64_ends_with_the_scale_and_zeros() -> None:
    packed = FORMATS["tile64"].pack(ternary((3, 5)), 0.75)
    assert packed.size == 2 * 64 + 64
    assert packed[-64:].tobytes() == np.float32(0.75).tobytes() + bytes(60)


@pytest.mark.parametrize(("shape", "byte"), [((2, 65), 63), ((2, 65), 16), ((3, 63), 16 + 15), ((1, 1), 1)])
def test_row16_refuses_weights_in_its_padding(shape: Shape, byte: int) -> None:
    form = FORMATS["row16"]
    packed = form.pack(ternary(shape), 1.0)
    packed[byte] ^= 0x80 | 0x40
    error = refused(lambda: form.unpack(packed, shape))
    assert (error.argument, error.legal) == ("packed", "0 in the padding")


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_scales_of_row16_lie_behind_the_words_group_by_group(group: int) -> None:
    form, shape = FORMATS[f"row16_g{group}"], (11, 3 * group)
    scales = np.arange(33, dtype=np.float32).reshape(11, 3) + 1
    packed = form.pack(ternary(shape), scales)
    words = FORMATS["row16"].packed_bytes(shape) - 64
    assert packed[:words].tobytes() == FORMATS["row16"].pack(ternary(shape), 1.0)[:words].tobytes()
    stored = packed[words:].view("<f2").reshape(3, 16)
    np.testing.assert_array_equal(stored[:, :11], scales.T)
    assert not stored[:, 11:].any()
    packed[words + 2 * 16 + 22] = 1
    error = refused(lambda: form.unpack(packed, shape))
    assert error.found == "with scales other than 0 behind the last row, of group 1"


@pytest.mark.parametrize(
    ("own", "other", "fits"),
    [
        ("row16_g64", "q2_0", False),
        ("row16_g128", "ptq1_0", True),
        ("row16_g32", "tq2_0", True),
        ("row16_g64", "tq1_0", True),
        ("row16_g256", "ptq1_0", False),
        ("row16_g128", "row16", False),
    ],
)
def test_scales_of_row16_take_coarser_groups(own: str, other: str, fits: bool) -> None:
    form, given = FORMATS[own], FORMATS[other]
    assert (form.refusal(given, (8, 512)) is None) is fits
    if fits:
        codes, scales = ternary((8, 512)), np.arange(4096 // given.group, dtype=np.float32).reshape(8, -1)
        found, repeated = form.unpack(form.pack(codes, form.regrouped(scales, given)), (8, 512))
        np.testing.assert_array_equal(found, codes)
        np.testing.assert_array_equal(np.repeat(repeated, form.group, 1), np.repeat(scales, given.group, 1))


def test_row16_ends_with_the_scale_and_zeros() -> None:
    packed = FORMATS["row16"].pack(ternary((3, 5)), 0.75)
    assert packed.size == 3 * 16 + 64
    assert packed[-64:].tobytes() == np.float32(0.75).tobytes() + bytes(60)


def test_row16_words_give_four_consecutive_weights_by_shift_and_mask() -> None:
    codes = ternary((5, 200))
    words = FORMATS["row16"].pack(codes, 1.0)[:-64].view("<u4").reshape(5, 16)
    for k in range(0, 200, 4):
        fours = words[:, k // 16] >> np.uint32(k % 16 // 4 * 2) & np.uint32(0x03030303)
        np.testing.assert_array_equal(fours.astype("<u4").view(np.uint8).reshape(5, 4), codes[:, k : k + 4] + 1)


@pytest.mark.parametrize("name", ["tile64", "tile80", "row16", *TILES])
def test_tritmarks_own_layouts_have_no_rule(name: str) -> None:
    error = refused(lambda: FORMATS[name].quantize(np.ones((4, 256), np.float32)))
    assert (error.op, error.argument) == (f"formats.{name}.quantize", "format")


with_rule = pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.rule])


@with_rule
@pytest.mark.parametrize(
    "x",
    [
        np.ones((4, 256)),
        np.ones((4, 256), ">f4"),
        np.ones((4, 256), "e"),
        np.ones(256, "f"),
        np.ones((0, 256), "f"),
        [[1.0]],
    ],
)
def test_wrong_floats_are_refused(name: str, x: Any) -> None:
    assert refused(lambda: FORMATS[name].quantize(x)).argument == "x"


@with_rule
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_warn_or_are_refused(name: str, value: float) -> None:
    x = np.ones((320, 256), np.float32)
    x[299, 7] = x[299, 9] = value
    with pytest.warns(NonFiniteWarning, match=r"at \(299, 7\)") as caught:
        FORMATS[name].quantize(x)
    assert caught[0].filename == __file__
    error = refused(lambda: FORMATS[name].quantize(x, nonfinite="error"))
    assert (error.argument, error.found) == ("x", f"{np.float32(value)} at (299, 7)")
    assert refused(lambda: FORMATS[name].quantize(x, nonfinite="zero")).argument == "nonfinite"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in HALF if FORMATS[name].rule])
def test_a_block_scale_that_overflows_is_told(name: str) -> None:
    shape = (2, 2 * FORMATS[name].group)
    x = np.ones(shape, np.float32)
    x[1, FORMATS[name].group + 44] = -65520
    with pytest.warns(NonFiniteWarning, match=r"65520\.0 as the largest of block \(1, 1\)"):
        packed = FORMATS[name].quantize(x)
    assert FORMATS[name].unpack(packed, shape)[1].tolist() == [[1, 1], [1, np.inf]]
    refused(lambda: FORMATS[name].quantize(x, nonfinite="error"))


def test_importing_the_formats_costs_only_numpy() -> None:
    code = "import sys, json, tritmark.kernels.formats; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"scipy", "pandas", "matplotlib", "pydantic", "jinja2", "ml_dtypes", "gguf"} & set(loaded)
