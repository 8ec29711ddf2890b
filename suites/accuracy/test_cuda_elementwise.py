"""The elementwise CUDA kernels against their contracts, on the GPU if there is one, else in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Op, Values, Variant
from tritmark.harness.validate.guards import bits
from tritmark.kernels.absmean_quantize import cuda as absmean_cuda
from tritmark.kernels.absmean_quantize import reference as absmean_reference
from tritmark.kernels.absmean_quantize.spec import OP as ABSMEAN_QUANTIZE
from tritmark.kernels.activation_quantize import cuda as activation_cuda
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.float_narrow import cuda as narrow_cuda
from tritmark.kernels.float_narrow.api import float_narrow
from tritmark.kernels.float_narrow.spec import OP as FLOAT_NARROW
from tritmark.kernels.float_widen import cuda as widen_cuda
from tritmark.kernels.float_widen.api import float_widen
from tritmark.kernels.float_widen.reference import held, widened
from tritmark.kernels.float_widen.spec import OP as FLOAT_WIDEN
from tritmark.kernels.i2s_dequantize import cuda as dequantize_cuda
from tritmark.kernels.i2s_dequantize.spec import OP as I2S_DEQUANTIZE
from tritmark.kernels.i2s_quantize import cuda as quantize_cuda
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.i2s_quantize.steps import find_steps
from tritmark.kernels.numerics.narrowing import narrowed

F32 = np.finfo(np.float32)

OPS: Mapping[str, Op] = {
    op.name: op
    for op in (I2S_QUANTIZE, I2S_DEQUANTIZE, ABSMEAN_QUANTIZE, ACTIVATION_QUANTIZE, FLOAT_NARROW, FLOAT_WIDEN)
}
MODULES = (quantize_cuda, dequantize_cuda, absmean_cuda, activation_cuda, narrow_cuda, widen_cuda)
VARIANTS = tuple(variant for module in MODULES for variant in module.VARIANTS)
FLAT = tuple(variant for variant in VARIANTS if variant.key.op != "activation_quantize")
ROWS = tuple(variant for variant in VARIANTS if variant.key.op == "activation_quantize")
CHECKED = tuple(variant for variant in VARIANTS if any(t.values is Values.FINITE for t in OPS[variant.key.op].inputs))


def _each(name: str, variants: tuple[Variant, ...]) -> Any:
    return pytest.mark.parametrize(name, variants, ids=lambda v: f"{v.key.op}-{v.key.format}-{v.key.dtype}-{v.name}")


SIZES = (1, 15, 16, 17, 255, 4095, 4096, 4097, 12_301)


@pytest.mark.parametrize("n", SIZES)
@_each("variant", FLAT)
def test_every_size(judge, variant: Variant, n: int):
    offsets = (0, 1, 3) if variant.alignment == 1 else (0, 16)
    for offset in offsets:
        judge(variant, {"n": n}, "uniform", offset, seed=n)


@_each("variant", FLAT)
def test_every_family(judge, variant: Variant):
    for family in OPS[variant.key.op].input_families:
        judge(variant, {"n": 8700}, family)


SHAPES = ((1, 1), (3, 5), (2, 127), (1, 2560), (4, 2561), (200, 33), (1, 16_384), (2, 16_385), (1, 33_000))


@pytest.mark.parametrize(("M", "K"), SHAPES)
@_each("variant", ROWS)
def test_rows_of_every_length_and_alignment(judge, variant: Variant, M: int, K: int):
    for offset, gap in ((0, 0), (0, 4), (1, 0), (3, 3)):
        judge(variant, {"M": M, "K": K}, "normal", offset, gap)


@_each("variant", ROWS)
def test_every_family_of_rows(judge, variant: Variant):
    for family in ACTIVATION_QUANTIZE.input_families:
        judge(variant, {"M": 3, "K": 1100}, family)


@_each("variant", tuple(variant for variant in VARIANTS if variant.alignment > 1))
def test_an_address_that_is_not_aligned_is_refused(bound, variant: Variant):
    inputs = OPS[variant.key.op].generate({"n": 40}, "uniform", np.random.default_rng(0))
    encoded = OPS[variant.key.op].encode(inputs, {"n": 40}, variant.key.format)
    with pytest.raises(InvalidArgumentError, match="a multiple of 16 bytes"):
        bound(variant, encoded, {"n": 40}, offset=1)


@_each("variant", CHECKED)
def test_the_first_that_is_not_finite_is_named_and_then_forgotten(bound, variant: Variant):
    rows = variant in ROWS
    axes = {"M": 7, "K": 1301} if rows else {"n": 9107}
    op = OPS[variant.key.op]
    inputs = op.generate(axes, "uniform", np.random.default_rng(3))
    there = bound(variant, op.encode(inputs, axes, variant.key.format), axes)
    count = 9107
    for places in (
        (0,),
        (count - 1,),
        (4095,),
        (4096,),
        (4095, 4094),
        (5000, 5003, 9000, 4999, 8191),
        (8192, 9106),
        (1, 2, 3),
    ):
        for value in (np.nan, -np.inf):
            x = inputs["x"].copy()
            x.reshape(-1)[list(places)] = value
            there.run(op.encode({**inputs, "x": x}, axes, variant.key.format))
            assert there.launch.bad == min(places)
    there.run(op.encode(inputs, axes, variant.key.format))
    assert there.launch.bad == -1


@_each("variant", quantize_cuda.VARIANTS)
def test_every_scale_has_its_steps_where_the_division_has_them(bound, variant: Variant):
    least, denormal = F32.smallest_subnormal, np.nextafter(F32.tiny, np.float32(0))
    for scale in map(
        np.float32, (least, 3 * least, denormal, F32.tiny, 1e-20, 0.7, 1.0, F32.max / np.float32(1.5), F32.max)
    ):
        x = _near_multiples(scale)
        axes = {"n": x.size}
        inputs = {"x": x, "scale": scale}
        encoded = I2S_QUANTIZE.encode(inputs, axes, variant.key.format)
        found = bound(variant, encoded, axes).run(encoded)
        assert np.array_equal(found["q"], I2S_QUANTIZE.reference(inputs, axes, variant.key)["q"])


def _near_multiples(scale: np.float32) -> np.ndarray:
    """The floats around the multiples of scale / 2, to 8 steps either side, the ends of the range, and any float at
    all."""
    multiples = np.clip(np.arange(6) * 0.5 * float(scale), 0, float(F32.max)).astype(np.float32)
    near = np.clip(
        multiples.view(np.int32) + np.arange(-8, 9, dtype=np.int32)[:, np.newaxis],
        0,
        np.float32(F32.max).view(np.int32),
    )
    anything = np.random.default_rng(0).integers(0, 1 << 31, 300, dtype=np.uint32).view(np.float32)
    x = np.concatenate([near.astype(np.int32).view(np.float32).reshape(-1), anything[np.isfinite(anything)]])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("seed", range(40))
def test_steps_are_the_largest_values_of_their_codes(seed: int):
    scale = np.random.default_rng(seed).integers(1, 0x7F800000, dtype=np.uint32).view(np.float32)
    steps = find_steps(scale)
    with np.errstate(over="ignore", under="ignore"):
        for last, code in ((steps.one, 0), (steps.two, 1)):
            assert min(1, np.rint(last / scale)) == code
            if last < F32.max:
                assert np.rint(np.nextafter(last, np.float32(np.inf)) / scale) > code


@_each("variant", absmean_cuda.VARIANTS)
def test_chunks_of_many_tiles(judge, variant: Variant, monkeypatch: pytest.MonkeyPatch):
    """Chunks grow past 2**22 elements; with 4 chunks in place of 1024 they do so sooner."""
    monkeypatch.setattr(absmean_cuda, "CHUNKS", 4)
    monkeypatch.setattr(absmean_reference, "CHUNKS", 4)
    for n in (4 * 4096 + 1, 61_000, 4 * 4 * 4096, 80_003):
        judge(variant, {"n": n}, "heavy", seed=n)


@_each("variant", absmean_cuda.VARIANTS)
def test_the_order_of_the_sum_is_the_stated_one(bound, variant: Variant):
    """Terms that vanish beside a large one, but not beside each other: any other order gives another sum."""
    x = np.full(3 * 4096 + 5, 2.0**-30, np.float32)
    x[[0, 4096 + 7, 3 * 4096 + 4]] = np.float32(2.0**24)
    axes = {"n": x.size}
    there = bound(variant, {"x": x}, axes)
    found = there.run({"x": x})
    assert np.array_equal(bits(found["scale"]), bits(absmean_reference.reference({"x": x}, axes, variant.key)["scale"]))
    # float32 hides the difference, so inspect the chunks' sums.
    call = there.launch._call
    sums = call.workspace.view((4,), np.float64).numpy()
    expected = [
        absmean_reference.mean_magnitude(x[i : i + 4096]) * min(4096, x.size - i) for i in range(0, x.size, 4096)
    ]
    assert sums.tolist() == expected


@_each("variant", absmean_cuda.VARIANTS)
def test_the_order_of_the_chunks_is_the_stated_one(bound, variant: Variant):
    """Chunk 0 is halfway between two float32. A 1 vanishes beside it, a 2 does not: the scale shows which of them
    were added first."""
    x = np.zeros(4 * 4096, np.float32)
    x[[0, 1, 4096, 2 * 4096, 3 * 4096]] = 2.0**53, 2.0**29, 1, 1, 1
    assert absmean_reference.mean_magnitude(x) == (2.0**53 + 2.0**29 + 2) / x.size
    found = bound(variant, {"x": x}, {"n": x.size}).run({"x": x})
    assert found["scale"] == (2.0**53 + 2.0**30) / x.size


@_each("variant", absmean_cuda.VARIANTS)
def test_half_the_scale_is_a_tie_and_goes_to_zero(bound, variant: Variant):
    """The magnitudes' mean is 1, with halves and the floats next to them."""
    half, above, below = 0.5, 0.5 + 2.0**-24, 0.5 - 2.0**-25
    x = np.array(
        [half, 1.5, above, above, 1.5 - 2.0**-23, 1.5, *[below] * 4, 1.5 + 2.0**-23, *[1.5] * 3] * 300, np.float32
    )
    x[::3] *= -1
    axes = {"n": x.size}
    found = bound(variant, {"x": x}, axes).run({"x": x})
    assert found["scale"] == 1
    assert np.array_equal(found["codes"], np.where(np.abs(x) > 0.5, np.sign(x), 0))


PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@_each("variant", widen_cuda.VARIANTS)
def test_every_pattern_is_widened_a_nan_too(bound, variant: Variant):
    h = PATTERNS.view(named_dtype(variant.key.format))
    found = bound(variant, {"h": h}, {"n": h.size}).run({"h": h})["x"]
    assert np.array_equal(bits(found), bits(widened(h)))


@_each("variant", narrow_cuda.VARIANTS)
def test_narrowing_rounds_to_nearest_even_and_keeps_what_a_nan_can_keep(bound, variant: Variant):
    """Around every float16 and bfloat16 and halfway to the next: NaN and infinity included."""
    rng = np.random.default_rng(5)
    anything = rng.integers(0, 1 << 32, 6000, dtype=np.uint32)
    near = (PATTERNS[::7].astype(np.uint32) << 16)[:, np.newaxis] + np.array(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32
    )
    with np.errstate(invalid="ignore"):
        half = PATTERNS[::5].view(np.float16).astype(np.float32).view(np.uint32)
    half = half[:, np.newaxis] + np.array([0, 0x0FFF, 0x1000, 0x1001], np.uint32)
    nans = np.array([0x7F800001, 0x7FC00000, 0xFF800001, 0xFFFFFFFF, 0x7F802000, 0x7FBFFFFF, 0x7F8FE000], np.uint32)
    x = np.concatenate([anything, near.reshape(-1), half.reshape(-1), nans]).view(np.float32)
    found = bound(variant, {"x": x}, {"n": x.size}).run({"x": x})["h"]
    assert np.array_equal(bits(found), bits(narrowed(x, variant.key.dtype)))


@pytest.mark.parametrize(("dtype", "digits", "least"), [("float16", 11, -24), ("bfloat16", 8, -133)])
def test_the_reference_rounds_as_exact_fractions_do(dtype: str, digits: int, least: int):
    """`digits` significant bits, none below 2**least."""
    x = np.concatenate(
        [
            FLOAT_NARROW.generate({"n": 500}, family, np.random.default_rng(1))["x"]
            for family in FLOAT_NARROW.input_families
        ]
    )
    largest = Fraction(float(ml_dtypes.finfo(named_dtype(dtype)).max))
    for value, found in zip(x.tolist(), narrowed(x, dtype).astype(np.float64).tolist(), strict=True):
        if not np.isfinite(value):
            assert found == value or (np.isnan(found) and np.isnan(value))
            continue
        _, exponent = np.frexp(value)
        unit = Fraction(2) ** max(int(exponent) - digits, least)
        rounded = round(Fraction(value) / unit) * unit  # ties to even
        assert found == (float(rounded) if abs(rounded) <= largest else np.copysign(np.inf, value))


def test_a_nan_stays_quiet_and_keeps_its_sign_and_leading_payload():
    nan = np.array([0x7F800001, 0xFFC12345, 0x7FBFFFFF], np.uint32).view(np.float32)
    assert [hex(bits) for bits in narrowed(nan, "bfloat16").view(np.uint16)] == ["0x7fc0", "0xffc1", "0x7fff"]
    assert [hex(bits) for bits in narrowed(nan, "float16").view(np.uint16)] == ["0x7e00", "0xfe09", "0x7fff"]
    assert widened(np.array([0x7F81, 0xFFC1], np.uint16).view(ml_dtypes.bfloat16)).view(np.uint32).tolist() == [
        0x7FC10000,
        0xFFC10000,
    ]
    assert widened(np.array([0x7C01, 0xFE09], np.uint16).view(np.float16)).view(np.uint32).tolist() == [
        0x7FC02000,
        0xFFC12000,
    ]


@pytest.mark.parametrize(("dtype", "signalling"), [("float16", 0x7C01), ("bfloat16", 0x7F81)])
def test_what_is_widened_may_hold_a_signalling_nan(dtype: str, signalling: int):
    x = np.array([0x7F800001, 0x7FC00000, 0x7F800000, 0x3F800000], np.uint32).view(np.float32)
    found, plain = held(x, dtype).view(np.uint16), narrowed(x, dtype).view(np.uint16)
    assert found[0] == signalling
    assert found[1:].tolist() == plain[1:].tolist()


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_functions_convert_there_and_back(dtype: str):
    x = np.random.default_rng(9).standard_normal((3, 5, 7), dtype=np.float32)
    h = float_narrow(x, dtype)
    assert (h.shape, h.dtype) == (x.shape, named_dtype(dtype))
    assert np.array_equal(bits(h), bits(narrowed(x, dtype)))
    back = float_widen(h)
    assert (back.shape, back.dtype) == (x.shape, np.float32)  # type: ignore[comparison-overlap]
    assert np.array_equal(back, h.astype(np.float32))
    assert np.array_equal(bits(float_narrow(back, dtype, variant="v1")), bits(h))


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(InvalidArgumentError, match="float16 or bfloat16"):
        float_narrow(np.ones(3, np.float32), "float64")
    with pytest.raises(InvalidArgumentError, match="x is of dtype float64"):
        float_narrow(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="h is of dtype float32"):
        float_widen(np.ones(3, np.float32))
    with pytest.raises(InvalidArgumentError, match="h is empty"):
        float_widen(np.ones(0, np.float16))
