"""The data that variants are judged on: two sets, of which no constant is right for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Op, Workload
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import FEW, Cases, Material
from tritmark.kernels import OPS, PROVIDER

QUANTIZE = next(op for op in OPS if op.name == "i2s_quantize")
KEY = KernelKey("cpu", "i2s_quantize", "none", "int8")
SCALAR = next(variant for variant in PROVIDER.variants if variant.key == KEY and variant.name == "scalar")


def cases(op: Op, key: KernelKey, axes: Axes, seed: int, family: str = "normal") -> Cases:
    return Material(op, Workload(op=op.name, axes=axes, family=family), seed).cases(key)


@given(st.integers(1, FEW), st.integers(0, 2**32))
def test_of_few_outputs_the_two_sets_do_not_give_the_same(n: int, seed: int) -> None:
    made = cases(QUANTIZE, KEY, {"n": n}, seed)
    assert made.second is not None
    (first,), (second,) = made.first.expected, made.second.expected
    assert (first.values != second.values).any()


class Constant:
    """A launch that writes one number everywhere, and says what the launch of a right kernel would."""

    def __init__(self, launch: Launch, outputs: Arrays, number: int) -> None:
        self._launch, self._outputs, self._number = launch, outputs, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def run(self) -> None:
        self._launch.run()
        for output in self._outputs.values():
            output[...] = self._number


@given(st.integers(1, 5), st.sampled_from([-1, 0, 1]), st.integers(0, 2**32))
def test_a_constant_is_not_right(n: int, number: int, seed: int) -> None:
    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return Constant(SCALAR.bind(inputs, outputs, axes, threads), outputs, number)

    wrong = replace(SCALAR, bind=bind)
    found = judge(
        QUANTIZE, wrong, cases(QUANTIZE, KEY, {"n": n}, seed), {"n": n}, layout="aligned", threads=1, seed=seed
    )
    assert found.accuracy.status is Status.FAIL


def test_a_set_that_cannot_give_anything_else_is_taken_as_it_is() -> None:
    made = cases(QUANTIZE, KEY, {"n": 3}, 1, "zero")
    assert made.second is not None
    assert not made.second.expected[0].values.any()


def test_each_key_gets_the_same_sets_whichever_was_asked_for_before() -> None:
    quantize = next(op for op in OPS if op.name == "ternary_quantize")
    keys = sorted(
        {
            variant.key
            for variant in PROVIDER.variants
            if (variant.key.device, variant.key.op) == ("cpu", quantize.name)
        },
        key=str,
    )
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
