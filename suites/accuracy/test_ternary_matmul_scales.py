"""ternary_matmul with weights that have a scale for each row or group: the contract, its bound, and other packages'
kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness import providers
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, MultipleOf, Tier, ToleranceKind, Variant
from tritmark.harness.validate import drawn
from tritmark.harness.validate.compare import compare, expectations, rounded
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.kernels import (
    FORMATS,
    OPS,
    PackedWeights,
    QuantizedLinear,
    activation_quantize,
    pack_weights,
    register,
    ternary_matmul,
)
from tritmark.kernels.formats import Format
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.cpu import FORMATS as OF_CPU
from tritmark.kernels.ternary_matmul.reference import accumulate, reference
from tritmark.kernels.ternary_matmul.scales import weight_scales

OP = next(op for op in OPS if op.name == "ternary_matmul")


@dataclass(frozen=True, kw_only=True)
class Plain(Format):
    """Codes as int8, row after row, and behind each row its scales."""

    def packed_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        count = shape[1] // self.group if self.group else 1
        return shape[0], shape[1] + count * np.dtype(self.scale_dtype).itemsize

    def _pack(self, codes: Any, scale: Any) -> Any:
        stored = self._stored(scale).reshape(len(codes), -1).view(np.uint8)
        return np.concatenate([codes.view(np.uint8), stored], axis=1)

    def _unpack(self, packed: Any, shape: tuple[int, int]) -> Any:
        rows = packed.reshape(self.packed_shape(shape))
        scales = np.ascontiguousarray(rows[:, shape[1] :]).view(self.scale_dtype)
        return rows[:, : shape[1]].view(np.int8).copy(), scales.astype(np.float32).reshape(self.scale_shape(shape))


ROWS = Plain(name="plain_rows", block=1, scale_per="row", summary="", source="")
GROUPS = Plain(
    name="plain_groups",
    block=64,
    column_multiple=64,
    scale_per="group",
    group=64,
    scale_dtype="float16",
    summary="",
    source="",
)

Work = Callable[[Format, Arrays, Arrays, Axes], None]


class PythonLaunch:
    """A launch of a kernel of another package, in NumPy."""

    pointer = None
    threads_used = 1
    bad = -1

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.ran, self.runs = "", 0

    def run(self) -> None:
        self.ran, self.runs = "plain", self.runs + 1
        with np.errstate(all="ignore"):
            self._work()


def by_rows(form: Format, inputs: Arrays, outputs: Arrays, axes: Axes) -> None:
    """As the native kernels do: one product in float64, rounded once."""
    codes, scales = form.unpack(inputs["weights"], (axes["N"], axes["K"]))
    sums = accumulate(inputs["activations"], codes)
    factors = np.float64(inputs["weight_scale"]) * scales / inputs["act_scale"].astype(np.float64)[:, None]
    out = outputs["out"]
    out[...] = sums if out.dtype == np.int32 else rounded(sums * factors, out.dtype)


def by_groups(form: Format, inputs: Arrays, outputs: Arrays, axes: Axes) -> None:
    """Every other group, then the rest, all in float32, which holds sums of float16 scales."""
    codes, stored = form.unpack(inputs["weights"], (axes["N"], axes["K"]))
    scales = np.asarray(stored)
    count, total = axes["K"] // form.group, np.zeros((axes["M"], axes["N"]), np.float32)
    for g in (*range(0, count, 2), *range(1, count, 2)):
        columns = slice(g * form.group, (g + 1) * form.group)
        total += accumulate(inputs["activations"][:, columns], codes[:, columns]).astype(np.float32) * scales[:, g]
    outputs["out"][...] = (total / inputs["act_scale"][:, None]).astype(outputs["out"].dtype)


def plain(form: Format, dtype: str, work: Work, name: str = "plain") -> Variant:
    """A kernel of another package."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> PythonLaunch:
        return PythonLaunch(partial(work, form, inputs, outputs, axes))

    key = KernelKey("cpu", OP.name, form.name, dtype)
    limits = (MultipleOf("K", form.group),) if form.group else ()
    return Variant(key=key, name=name, tier=Tier.BASELINE, summary="", bind=bind, constraints=limits)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats and kernels of another package are installed, and none is forced: what is forced is an instruction set
    of this one."""
    monkeypatch.delenv(cpu.FORCE, raising=False)
    monkeypatch.setattr(providers, "_LOADED", [])
    monkeypatch.setattr(drawn, "_MOST_REPEATS", 6)
    for form in (ROWS, GROUPS):
        monkeypatch.setitem(providers.installed().formats, form.name, form)
    register(*(plain(ROWS, dtype, by_rows) for dtype in ("int32", "float32", "bfloat16")))
    register(*(plain(GROUPS, dtype, by_groups) for dtype in ("float32", "bfloat16")))


def judged(variant: Variant) -> Any:
    return judge_drawn(OP, variant, variant.key, corners=(), count=40, seed=3, cores=2, device=None).accuracy


def some_weights(form: Format, shape: tuple[int, int], seed: int = 0) -> PackedWeights:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 2, shape, dtype=np.int8)
    return pack_weights(codes, rng.standard_normal(form.scale_shape(shape), np.float32), format=form.name)


# --- formats and kernels of other packages
# ------------------------------------------------------------------------------------------------


def test_weights_with_a_scale_for_each_row_are_computed_and_their_sums_are_exact(others: None) -> None:
    weights, rng = some_weights(ROWS, (5, 70)), np.random.default_rng(1)
    activations, act_scale = rng.integers(-128, 128, (3, 70), dtype=np.int8), np.array([1, 3, 0.7], np.float32)
    codes, scales = weights.unpack()
    sums = activations.astype(np.int64) @ codes.T.astype(np.int64)
    out, receipt = with_receipt(activations, weights, act_scale=act_scale)
    assert (receipt.kernel, receipt.note) == ("cpu/ternary_matmul/plain_rows/float32/plain", "")
    assert np.array_equal(
        out, (sums * (scales.astype(np.float64) / act_scale[:, None].astype(np.float64))).astype(np.float32)
    )
    assert np.array_equal(ternary_matmul(activations, weights, dtype="int32"), sums)


@pytest.mark.parametrize("form", [ROWS, GROUPS], ids=lambda form: form.name)
def test_a_layer_takes_the_formats_of_others(others: None, form: Format) -> None:
    weights, x = some_weights(form, (5, 128)), np.random.default_rng(1).standard_normal((3, 128), np.float32)
    layer = QuantizedLinear(weights)
    quantized = activation_quantize(x)
    exact = (quantized.q @ weights.dequantize().T.astype(np.float64)) / quantized.scale.astype(np.float64)[:, None]
    assert np.allclose(layer(x), exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    assert layer.receipt is not None
    assert layer.receipt.kernel == f"cpu/ternary_matmul/{form.name}/float32/plain"


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_kernels_of_others_are_judged(others: None, dtype: str) -> None:
    for form, work in ((ROWS, by_rows), (GROUPS, by_groups)):
        if form is ROWS or dtype != "int32":
            found = judged(plain(form, dtype, work))
            assert found.status is Status.PASS, found.reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_of_others_that_take_the_wrong_scales_fail(others: None, dtype: str) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Misread(Plain):
        def _unpack(self, packed: Any, shape: tuple[int, int]) -> Any:
            codes, scales = super()._unpack(packed, shape)
            return codes, np.roll(scales.reshape(-1), 1).reshape(scales.shape)

    for form, work in ((ROWS, by_rows), (GROUPS, by_groups)):
        wrong = Misread(**{field: getattr(form, field) for field in form.__dataclass_fields__})
        assert judged(plain(wrong, dtype, work)).status is Status.FAIL


def test_sums_of_whole_rows_have_no_meaning_with_scales_of_groups(others: None) -> None:
    activations = np.ones((1, 256), np.int8)
    for format in ("plain_groups", "tq2_0"):
        weights = some_weights(FORMATS[format], (4, 256))
        with pytest.raises(
            InvalidArgumentError, match=rf"dtype is 'int32' for {format}, which has a scale for each group"
        ):
            ternary_matmul(activations, weights, dtype="int32")


def test_scales_are_not_repacked_into_ones_that_hold_less(others: None) -> None:
    wide = replace(GROUPS, name="wide", block=256, group=256, column_multiple=256, scale_dtype="float32")
    assert FORMATS["tq2_0"].refusal(wide, (4, 256)) == "wide has scales of float32, tq2_0 of float16"
    assert wide.refusal(FORMATS["tq2_0"], (4, 256)) is None
    assert (
        GROUPS.refusal(ROWS, (4, 256))
        == "plain_rows has a scale for each row, plain_groups a scale for each group of 64"
    )


def test_one_scale_is_packed_for_a_kernel_that_takes_one(others: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However good kernels of a format with more scales are."""
    best = replace(plain(GROUPS, "float32", by_groups, "best"), tier=Tier.EXTREMELY_OPTIMIZED, rank=1000)
    register(best)
    assert pack_weights(np.ones((2, 64), np.int8), 0.3).format == "tile64"


def test_without_a_kernel_a_layer_computes_with_float_weights_and_says_so(
    others: None, caplog: pytest.LogCaptureFixture
) -> None:
    lonely = replace(GROUPS, name="lonely", group=16, block=16, column_multiple=16)
    providers.installed().formats["lonely"] = lonely
    weights, rng = some_weights(lonely, (4, 256)), np.random.default_rng(1)
    with pytest.raises(NoCompatibleKernelError, match="plain_groups: lonely has a scale for each group of 16"):
        ternary_matmul(np.ones((1, 256), np.int8), weights)
    with caplog.at_level(logging.WARNING):
        layer = QuantizedLinear(weights)
    assert "no native kernel takes lonely" in caplog.text
    x = rng.standard_normal((3, 256), np.float32)
    values = weights.dequantize().astype(np.float64)
    bound = 256 * 2.0**-24 / (1 - 256 * 2.0**-24) * (np.abs(x).astype(np.float64) @ np.abs(values).T)
    assert np.all(np.abs(layer(x) - x.astype(np.float64) @ values.T) <= bound)
    assert layer.receipt is not None
    assert not layer.receipt.native
    assert "dequantized" in layer.receipt.note


# --- the scales that data have
# ----------------------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(OP.input_families),
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["tq2_0", "tq1_0"]),
)
def test_what_kernels_unpack_are_the_scales_of_the_reference(family, seed, N, blocks, format):
    axes = {"M": 1, "N": N, "K": 256 * blocks}
    inputs = OP.generate(axes, family, np.random.default_rng(seed))
    encoded = OP.encode(inputs, axes, format)
    codes, scales = FORMATS[format].unpack(encoded["weights"], (N, 256 * blocks))
    expected = weight_scales(inputs, axes, format)
    assert np.array_equal(codes, inputs["weights"])
    assert np.array_equal(scales, expected)
    assert np.isfinite(scales).all()
    assert (scales != 0).all()
    assert encoded["weight_scale"] == 1


def test_a_neighbours_scale_is_another():
    axes = {"M": 1, "N": 100, "K": 256 * 64}
    inputs = {**OP.generate(axes, "uniform", np.random.default_rng(0)), "weight_scale": np.float32(1)}
    scales = weight_scales(inputs, axes, "tq2_0")
    assert (scales[:, 1:] != scales[:, :-1]).mean() > 0.99
    alike = weight_scales({**inputs, "weights": np.ones_like(inputs["weights"])}, axes, "tq2_0")
    assert (alike[:, 1:] != alike[:, :-1]).all()
    assert 0.4 < (scales < 0).mean() < 0.6


@given(st.integers(0, 2**32), st.permutations(range(7)))
def test_rows_keep_their_scales_wherever_they_lie(seed, order):
    axes = {"M": 1, "N": 7, "K": 512}
    inputs = OP.generate(axes, "uniform", np.random.default_rng(seed))
    scales = weight_scales(inputs, axes, "tq2_0")
    moved = weight_scales({**inputs, "weights": inputs["weights"][list(order)]}, axes, "tq2_0")
    assert np.array_equal(moved, scales[list(order)])
    inputs["weights"][:, 5:256] = 0
    assert np.array_equal(weight_scales(inputs, axes, "tq2_0"), scales), "one weight decides about a whole group"


# --- the bound
# ----------------------------------------------------------------------------------------------------------------------


def parts_of(inputs: Arrays, axes: Axes) -> tuple[Any, Any]:
    """Each group's exact sums (groups, M, N), and scales (groups, 1, N), in float32."""
    w, x = inputs["weights"].astype(np.int64), inputs["activations"].astype(np.int64)
    parts = np.stack([x[:, k : k + 256] @ w[:, k : k + 256].T for k in range(0, axes["K"], 256)])
    return parts.astype(np.float32), weight_scales(inputs, axes, "tq2_0").T[:, None, :]


@given(
    st.sampled_from([each for each in OP.input_families if each != "scales"]), st.integers(0, 2**32), st.integers(1, 12)
)
def test_float32_sums_in_any_order_are_within_the_bound(family, seed, blocks):
    rng, axes = np.random.default_rng(seed), {"M": 3, "N": 9, "K": 256 * blocks}
    inputs = OP.generate(axes, family, rng)
    parts, scales = parts_of(inputs, axes)
    act = inputs["act_scale"][:, None]
    inverse = np.float32(1) / act
    terms = {
        "at the end": parts * scales,
        "by its inverse": parts * scales,
        "with the scales": parts * (scales * inverse),
    }
    for way, each in terms.items():
        order = rng.permutation(blocks)
        one_by_one = np.add.accumulate(each[order], axis=0)[-1]
        pairwise = each[order]
        while len(pairwise) > 1:
            half = len(pairwise) // 2
            pairwise = np.concatenate([pairwise[:half] + pairwise[half : 2 * half], pairwise[2 * half :]])
        for total in (one_by_one, pairwise[0]):
            out = {"at the end": total / act, "by its inverse": total * inverse, "with the scales": total}[way]
            for dtype in ("float32", "bfloat16"):
                (expected,) = wanted(inputs, axes, dtype)
                assert expected.tolerance_kind is ToleranceKind.BOUNDED
                assert compare(expected, out.astype(named_dtype(dtype))).wrong.size == 0, (way, dtype)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_the_bound_covers_what_float64_loses(seed, blocks):
    """The reference compared with rational numbers: its error is far below its share of the bound."""
    axes = {"M": 1, "N": 2, "K": 256 * blocks}
    inputs = OP.generate(axes, "extremes", np.random.default_rng(seed))
    found = reference(inputs, axes, KernelKey("cpu", OP.name, "tq2_0", "float32"))
    parts, scales = parts_of(inputs, axes)
    for n in range(2):
        exact = sum(Fraction(float(parts[g, 0, n])) * Fraction(float(scales[g, 0, n])) for g in range(blocks))
        exact /= Fraction(float(inputs["act_scale"][0]))
        assert abs(Fraction(float(found["out"][0, n])) - exact) <= Fraction(float(found["out.bound"][0, n])) / 1000


def wanted(inputs: Arrays, axes: Axes, dtype: str) -> Any:
    key = KernelKey("cpu", OP.name, "tq2_0", dtype)
    return expectations(OP, axes, key, reference(inputs, axes, key))


GROUPED = [each for each in OF_CPU if FORMATS[each].scale_per == "group"]


@pytest.mark.parametrize("format", GROUPED)
@pytest.mark.parametrize(("N", "groups"), [(1, 1), (3, 4), (66, 5), (21, 7), (8, 40)])
def test_rows_side_by_side_are_what_each_is_alone(format: str, N: int, groups: int) -> None:
    """Kernels take 1, 2 to 4 and more rows in ways of their own; 40 groups of 256 are a long row."""
    rng = np.random.default_rng(5)
    K = FORMATS[format].group * groups
    weights = pack_weights(
        rng.integers(-1, 2, (N, K), dtype=np.int8),
        rng.uniform(-2, 2, (N, groups)).astype(np.float16).astype(np.float32),
        format=format,
    )
    x, act_scale = rng.integers(-128, 128, (7, K + 9), dtype=np.int8)[:, :K], rng.uniform(1, 99, 7).astype(np.float32)
    for isa in (each for each in cpu.KERNELS[OF_CPU[format][0]] if each.features <= cpu.features()):
        alone = [
            ternary_matmul(x[m : m + 1], weights, act_scale=act_scale[m : m + 1], variant=isa.name) for m in range(7)
        ]
        for M in range(2, 8):
            together = ternary_matmul(x[:M], weights, act_scale=act_scale[:M], variant=isa.name, threads=2)
            assert np.array_equal(together.view(np.uint32), np.concatenate(alone[:M]).view(np.uint32)), (isa.name, M)


def test_with_one_scale_nothing_is_laxer() -> None:
    axes = {"M": 3, "N": 64, "K": 256}
    inputs = OP.generate(axes, "uniform", np.random.default_rng(0))
    for dtype in ("float32", "bfloat16"):
        key = KernelKey("cpu", OP.name, "tile64", dtype)
        (expected,) = expectations(OP, axes, key, reference(inputs, axes, key))
        assert expected.tolerance_kind is ToleranceKind.ROUNDED
        assert expected.error_bound is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["uniform", "normal"])
def test_what_is_wrong_by_little_is_outside_the_bound(dtype: str, family: str) -> None:
    axes = {"M": 4, "N": 40, "K": 6912}
    inputs = OP.generate(axes, family, np.random.default_rng(5))
    scales, act = weight_scales(inputs, axes, "tq2_0"), inputs["act_scale"].astype(np.float64)[:, None]
    (expected,) = wanted(inputs, axes, dtype)
    kind = expected.values.dtype

    def share(**changed: Any) -> float:
        """The share of incorrect outputs that are detected."""
        out = reference({**inputs, "weight_scale": scales, **changed}, axes, KernelKey("cpu", OP.name, "tq2_0", dtype))[
            "out"
        ]
        found = rounded(out, kind)
        return compare(expected, found).wrong.size / max(1, int(np.count_nonzero(found != expected.values)))

    assert compare(expected, rounded(expected.exact, kind)).wrong.size == 0
    # Weight 3000 of row 7, which is 0, 1 or -1, becomes the next.
    weights = inputs["weights"].copy()
    weights[7, 3000] = (weights[7, 3000] + 2) % 3 - 1
    assert share(weights=weights) >= (1.0 if dtype == "float32" else 0.9)
    # The scale of one group from its neighbour.
    one = scales.copy()
    one[7, 11] = one[7, 12]
    assert share(weight_scale=one) == 1
    # The scale of a group off by one unit of float16's last place, in each row.
    near = scales.copy()
    near[:, 11] = np.nextafter(near[:, 11].astype(np.float16), np.float16(np.inf)).astype(np.float32)
    assert share(weight_scale=near) > (0.9 if dtype == "float32" else 0.5)
    # The scales applied after the sum: their mean, or the first of the row.
    for late in (scales.mean(axis=1, keepdims=True), scales[:, :1]):
        assert share(weight_scale=np.broadcast_to(late, scales.shape)) > 0.95
    # Sums in bfloat16.
    parts, columns = parts_of(inputs, axes)
    bfloat16 = named_dtype("bfloat16")
    total = np.zeros(expected.values.shape, bfloat16)
    for part, scale in zip(parts, columns, strict=True):
        total = (total.astype(np.float32) + part * scale).astype(bfloat16)
    found = rounded(total.astype(np.float64) / act, kind)
    assert compare(expected, found).wrong.size > 0.5 * found.size
