"""The data that variants are judged on: two sets, for which no constant output is correct."""

from __future__ import annotations

import numpy as np
import pytest
from constant_launch import writing
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tritmark.harness.record import Status
from tritmark.harness.spec import Axes, KernelKey, Op, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import FEW, Cases, Material
from tritmark.kernels import OPS, PROVIDER

BY_NAME = {op.name: op for op in OPS}
QUANTIZE = BY_NAME["i2s_quantize"]
PRODUCT = BY_NAME["matmul_bf16"]
KEY = KernelKey("cpu", "i2s_quantize", "none", "int8")
KEYS = (
    KEY,
    KernelKey("cpu", "ternary_quantize", "none", "int8"),
    KernelKey("cpu", "ternary_quantize", "i2_s_x86", "uint8"),
)
SCALAR = next(variant for variant in PROVIDER.variants if variant.key == KEY and variant.name == "scalar")


def cases(op: Op, key: KernelKey, axes: Axes, seed: int, family: str = "normal") -> Cases:
    return Material(op, Workload(op=op.name, axes=axes, family=family), seed).cases(key)


@pytest.mark.parametrize("key", KEYS, ids=str)
@given(st.integers(1, FEW), st.integers(0, 2**32))
@example(1, 288)  # a large scale: 64 draws all give 0
def test_of_few_elements_no_output_of_the_two_sets_is_the_same(key: KernelKey, n: int, seed: int) -> None:
    axes = {"n": n} | ({} if key == KEY else {"block": n})
    made = cases(BY_NAME[key.op], key, axes, seed)
    assert made.second is not None
    for first, second in zip(made.first.expected, made.second.expected, strict=True):
        assert (first.values != second.values).any(), first.name


def test_of_more_elements_chance_does_the_same() -> None:
    made = cases(QUANTIZE, KEY, {"n": 1 << 16}, 1)
    assert made.second is not None
    (first,), (second,) = made.first.expected, made.second.expected
    zero, alike = np.mean(first.values == 0), np.mean(first.values == second.values)
    assert zero ** (2 * (FEW + 1)) < 1e-6  # a kernel that writes 0 is correct on both sets
    assert alike ** (FEW + 1) < 1e-5  # both sets give the same


@given(st.integers(1, 5), st.sampled_from([-1, 0, 1]), st.integers(0, 2**32))
def test_a_constant_is_not_right(n: int, number: int, seed: int) -> None:
    wrong, data = writing(number, SCALAR), cases(QUANTIZE, KEY, {"n": n}, seed)
    found = judge(QUANTIZE, wrong, data, {"n": n}, layout="aligned", threads=1, seed=seed)
    assert found.accuracy.status is Status.FAIL


def test_a_set_that_cannot_give_anything_else_is_taken_as_it_is() -> None:
    made = cases(QUANTIZE, KEY, {"n": 3}, 1, "zero")
    assert made.second is not None
    assert not made.second.expected[0].values.any()


def test_each_key_gets_the_same_sets_whichever_was_asked_for_before() -> None:
    quantize = BY_NAME["ternary_quantize"]
    keys = [key for key in KEYS if key.op == quantize.name]
    assert len(keys) > 1
    workload = Workload(op=quantize.name, axes={"n": 2, "block": 2})
    for seed in range(20):
        together = Material(quantize, workload, seed)
        for key in keys:
            one, other = together.cases(key), Material(quantize, workload, seed).cases(key)
            assert one.second is not None
            assert other.second is not None
            for name, value in one.second.logical.items():
                np.testing.assert_array_equal(value, other.second.logical[name])


@pytest.mark.parametrize("seed", range(20))
def test_a_near_second_set_goes_past_no_bound(seed: int) -> None:
    """One factor is large where the other is small: elements of both draws would give sums past float32."""
    work = Workload(op="matmul_bf16", axes={"M": 14, "N": 45, "K": 60}, family="large")
    for case in Material(PRODUCT, work, seed, near=True).logical:
        with np.errstate(over="raise"):
            assert np.isfinite(case["a"].astype(np.float32) @ case["b"].astype(np.float32)).all()


@given(st.integers(FEW + 1, 5000), st.integers(0, 2**32))
def test_a_near_second_set_differs_from_the_first_in_some_elements_only(n: int, seed: int) -> None:
    work = Workload(op=QUANTIZE.name, axes={"n": n}, family="normal")
    first, second = Material(QUANTIZE, work, seed, near=True).logical
    differ = np.flatnonzero(first["x"] != second["x"])
    assume(differ.size)  # elements larger than all of the first set stay out
    assert differ.size <= 64
    assert differ.size <= 3 or differ[-1] - differ[0] < 64
    assert first["scale"] == second["scale"]
    other = Material(QUANTIZE, work, seed).logical[1]["x"]
    assert np.array_equal(second["x"][differ], other[differ])
