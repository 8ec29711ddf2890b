"""Comparison of outputs: the three families, and invalid references."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.spec import Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic
from tritmark.harness.validate.compare import (
    BrokenReferenceError,
    Comparison,
    compare,
    expectations,
    largest_difference,
    rounded,
)
from tritmark.harness.validate.families import NONFINITE

BF16 = np.dtype(ml_dtypes.bfloat16)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def contract(family: ToleranceKind, dtype: str, families: tuple[str, ...] = ()) -> tuple[Op, KernelKey]:
    op = Op(
        name="fake",
        summary="",
        source="",
        axes=("n",),
        inputs=(),
        outputs=(Tensor("y", ("n",), "key", ""),),
        tolerance_kind=family,
        input_families=families,
        generate=lambda axes, family, rng: {},
        encode=lambda inputs, axes, format: {},
        outputs_like=lambda axes, key: {"y": ((axes["n"],), dtype)},
        reference=lambda inputs, axes, key: {},
        traffic=lambda axes, key: Traffic(0, 0, 0),
    )
    return op, KernelKey("cpu", "fake", "none", dtype)


def judge(family: ToleranceKind, expected: Any, found: Any, bound: Any = None) -> Comparison:
    op, key = contract(family, found.dtype.name)
    axes: Axes = {"n": found.size}
    reference = {"y": np.asarray(expected)} | ({} if bound is None else {"y.bound": np.asarray(bound)})
    (only,) = expectations(op, axes, key, reference)
    return compare(only, found)


def test_exact_means_the_same_bits() -> None:
    expected = np.array([0.0, -0.0, np.inf, 1.0], np.float32)
    assert judge(ToleranceKind.EXACT, expected, expected.copy()).wrong.size == 0
    found = np.array([-0.0, -0.0, np.inf, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    result = judge(ToleranceKind.EXACT, expected, found)
    assert result.wrong.tolist() == [0, 3]
    assert result.largest_ulp == 1
    assert result.first is not None
    assert (result.first.index, result.first.expected, result.first.found) == ((0,), "0.0", "-0.0")


def test_integers_are_exact_in_every_family() -> None:
    for family in (ToleranceKind.EXACT, ToleranceKind.ROUNDED):
        result = judge(family, np.array([5, 7]), np.array([5, 8], np.int32))
        assert result.wrong.tolist() == [1]
        assert result.largest_error == 1


@pytest.mark.parametrize("dtype", [np.dtype("float16"), BF16, np.dtype("float32")])
def test_rounded_admits_one_ulp_and_not_two(dtype: np.dtype[Any]) -> None:
    exact = np.array([1.0, -1.0, 0.0, 3.0])
    near = exact.astype(dtype)
    for steps, wrong in ((1, []), (2, [0, 1, 2, 3])):
        found = near
        for _ in range(steps):
            found = np.nextafter(found, dtype.type(np.inf)).astype(dtype)
        result = judge(ToleranceKind.ROUNDED, exact, found)
        assert result.wrong.tolist() == wrong
        assert result.largest_ulp == steps


def test_nan_is_never_right() -> None:
    found = np.array([np.nan, 1.0], np.float32)
    assert judge(ToleranceKind.ROUNDED, np.array([1.0, 1.0]), found).wrong.tolist() == [0]
    assert judge(ToleranceKind.EXACT, np.array([1.0, 1.0], np.float32), found).wrong.tolist() == [0]
    assert judge(ToleranceKind.BOUNDED, np.array([1.0, 1.0], np.float32), found, [1e30, 1e30]).wrong.tolist() == [0]


@pytest.mark.parametrize("family", [ToleranceKind.ROUNDED, ToleranceKind.BOUNDED])
def test_where_nan_and_infinity_go_through_each_is_expected_where_the_reference_has_it(family: ToleranceKind) -> None:
    op, key = contract(family, "float32", (NONFINITE,))
    # The reference's error of such a value is not a number.
    reference = {"y": np.array([np.nan, np.inf, -np.inf, 1.0]), "y.bound": np.array([np.nan, np.inf, np.nan, 0.0])}
    if family is ToleranceKind.ROUNDED:
        del reference["y.bound"]
    (only,) = expectations(op, {"n": 4}, key, reference)

    def wrong(*found: float) -> list[int]:
        return [int(each) for each in compare(only, np.array(found, np.float32)).wrong]

    assert wrong(-np.nan, np.inf, -np.inf, 1.0) == []
    assert wrong(np.inf, -np.inf, np.nan, np.nan) == [0, 1, 2, 3]
    assert wrong(0.0, 1.0, -1.0, np.inf) == [0, 1, 2, 3]


def test_an_exact_nan_is_the_same_bits_and_its_bits_are_shown() -> None:
    op, key = contract(ToleranceKind.EXACT, "float32", (NONFINITE,))
    values = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    (only,) = expectations(op, {"n": 2}, key, {"y": values})
    assert compare(only, values.copy()).wrong.size == 0
    found = compare(only, np.array([0x7FC00001, 0x7FC00000], np.uint32).view(np.float32))
    assert found.wrong.tolist() == [1]
    assert found.first is not None
    assert (found.first.expected, found.first.found) == ("nan (0xffc00000)", "nan (0x7fc00000)")


def test_overflow_is_rounded_to_infinity() -> None:
    assert judge(ToleranceKind.ROUNDED, np.array([1e39]), np.array([np.inf], np.float32)).wrong.size == 0
    assert judge(ToleranceKind.ROUNDED, np.array([1e39]), np.array([1.0], np.float32)).wrong.size == 1


def test_bounded_takes_its_bound_from_the_reference() -> None:
    expected, found = np.array([1.0, 1.0, 2.0]), np.array([1.5, 1.25, 2.0], np.float32)
    assert judge(ToleranceKind.BOUNDED, expected, found, [0.25, 0.25, 0.0]).wrong.tolist() == [0]
    assert judge(ToleranceKind.BOUNDED, expected, found, [0.5, 0.25, 0.0]).wrong.size == 0


def test_an_op_that_rounds_is_judged_by_a_bound_where_the_reference_gives_one() -> None:
    expected, found = (
        np.array([1.0, 1.0, 1.0]),
        np.array([1.5, 1.25, np.nextafter(np.float32(1), np.float32(2))], np.float32),
    )
    assert judge(ToleranceKind.ROUNDED, expected, found).wrong.tolist() == [0, 1]
    assert judge(ToleranceKind.ROUNDED, expected, found, [0.25, 0.25, 0.0]).wrong.tolist() == [0, 2]
    exact = expected.astype(np.float32)
    assert judge(ToleranceKind.EXACT, exact, found, [0.25, 0.25, 1.0]).wrong.tolist() == [0, 1, 2], (
        "exact values stay exact"
    )


def test_an_integer_may_be_any_within_the_bound_around_a_float() -> None:
    """Between two codes, both are admitted; on a code, only that one."""
    expected, bound = np.array([3.5, 3.5, 3.5, -2.0, -2.0]), np.array([0.5, 0.5, 0.5, 0.0, 0.0])
    found = np.array([3, 4, 5, -2, -1], np.int8)
    assert judge(ToleranceKind.BOUNDED, expected, found, bound).wrong.tolist() == [2, 4]
    integers = np.array([3, 4, 3, -2, -2])
    assert judge(ToleranceKind.BOUNDED, integers, found, bound).wrong.tolist() == [2, 4], "integers stay exact"
    op, key = contract(ToleranceKind.BOUNDED, "int8")
    for wrong, told in ((np.nan, "NaN"), (127.6, "range of int8"), (-129.0, "range of int8")):
        with pytest.raises(BrokenReferenceError, match=told):
            expectations(op, {"n": 1}, key, {"y": np.array([wrong]), "y.bound": np.array([0.5])})


def test_a_signalling_nan_beside_an_infinity_is_wrong_and_nothing_more() -> None:
    found = np.array([0x7F800001, 0x7F800000], np.uint32).view(np.float32)
    assert judge(ToleranceKind.BOUNDED, [1.0, 1e39], found, [1.0, 1.0]).wrong.tolist() == [0]


@pytest.mark.parametrize("dtype", [BF16, np.dtype("float32")])
def test_a_bound_that_reaches_past_the_largest_number_admits_infinity(dtype: np.dtype[Any]) -> None:
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, half = float(info.max), float(info.eps) * 2.0**126
    for exact, bound, right in (
        (1e39, 1e30, True),
        (largest, 1.01 * half, True),
        (largest, 0.99 * half, False),
        (1.0, 1e30, False),
    ):
        for sign in (1, -1):
            found = np.array([sign * np.inf]).astype(dtype)
            assert judge(ToleranceKind.BOUNDED, [sign * exact], found, [bound]).wrong.tolist() == ([] if right else [0])
            assert judge(ToleranceKind.BOUNDED, [-sign * exact], found, [bound]).wrong.tolist() == [0]


@pytest.mark.parametrize(
    ("family", "dtype", "reference", "told"),
    [
        (ToleranceKind.EXACT, "float32", {}, "missing"),
        (ToleranceKind.EXACT, "float32", {"y": np.zeros(3, np.float32)}, "shape"),
        (ToleranceKind.EXACT, "float32", {"y": np.array([1, np.nan], np.float32)}, "NaN at index \\(1,\\)"),
        (ToleranceKind.ROUNDED, "float32", {"y": np.array([1, np.nan])}, "NaN"),
        (ToleranceKind.EXACT, "float32", {"y": np.zeros(2)}, "bit for bit"),
        (ToleranceKind.EXACT, "int8", {"y": np.array([0, 128])}, "range of int8"),
        (ToleranceKind.EXACT, "int8", {"y": np.zeros(2)}, "holds integers"),
        (ToleranceKind.BOUNDED, "float32", {"y": np.zeros(2)}, "no bound"),
        (ToleranceKind.BOUNDED, "float32", {"y": np.zeros(2), "y.bound": np.array([0, np.inf])}, "bound"),
        (ToleranceKind.BOUNDED, "float32", {"y": np.zeros(2), "y.bound": np.array([0, -1.0])}, "bound"),
    ],
)
def test_a_reference_that_cannot_be_judged_against_is_refused(
    family: ToleranceKind, dtype: str, reference: dict[str, Any], told: str
) -> None:
    op, key = contract(family, dtype)
    with pytest.raises(BrokenReferenceError, match=told):
        expectations(op, {"n": 2}, key, reference)


def test_expected_values_cannot_be_written() -> None:
    op, key = contract(ToleranceKind.EXACT, "int8")
    (only,) = expectations(op, {"n": 2}, key, {"y": np.array([1, 2], np.int8)})
    with pytest.raises(ValueError, match="read-only"):
        only.values[0] = 3
    assert replace(only, name="z").values is only.values


@given(st.lists(FINITE | st.integers(-(2**60), 2**60).map(lambda i: 1.0 + i * 2.0**-62), min_size=1, max_size=50))
def test_bfloat16_is_rounded_once(values: list[float]) -> None:
    exact = np.array(values)
    found = rounded(exact, BF16).astype(np.float64)
    for x, y in zip(values, found.tolist(), strict=True):
        if not np.isfinite(y):
            assert abs(x) >= 2.0**127 * (2 - 2.0**-8)
            continue
        spacing = (
            Fraction(float(np.spacing(np.float32(abs(y))))) * 2**16
            if y and abs(y) >= 2.0**-126
            else Fraction(2) ** -133
        )
        # Just above a power of two, the lower neighbour is half as far.
        assert abs(Fraction(x) - Fraction(y)) <= spacing / 2
        if abs(Fraction(x) - Fraction(y)) == spacing / 2:
            assert int(np.array(y, BF16).view(np.uint16)) % 2 == 0


def test_a_double_that_double_rounding_gets_wrong() -> None:
    just_over_half = 1 + 2.0**-8 + 2.0**-40
    assert float(rounded(np.array([just_over_half]), BF16)[0]) == 1 + 2.0**-7
    assert float(np.array([just_over_half]).astype(np.float32).astype(BF16)[0]) == 1.0


@given(st.data(), st.sampled_from([ToleranceKind.EXACT, ToleranceKind.ROUNDED, ToleranceKind.BOUNDED]))
def test_block_by_block_nothing_else_is_found(data: st.DataObject, family: ToleranceKind) -> None:
    values = st.sampled_from([0.0, 1.0, np.float32(1).item() + 2**-22, -3.0, np.inf])
    expected, found = (np.array(data.draw(st.lists(values, min_size=9, max_size=9)), np.float32) for _ in range(2))
    bound = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 4.0]), min_size=9, max_size=9)))
    given_bound = bound if family is ToleranceKind.BOUNDED else None
    whole = judge(family, expected, found, given_bound)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritmark.harness.validate.compare._BLOCK", data.draw(st.integers(1, 9)))
        blocks = judge(family, expected, found, given_bound)
        apart = largest_difference(expected, found)
    np.testing.assert_array_equal(blocks.wrong, whole.wrong)
    for field in fields(whole):
        assert field.name == "wrong" or getattr(blocks, field.name) == getattr(whole, field.name)
    assert apart == largest_difference(expected, found)
