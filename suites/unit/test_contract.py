"""Arguments against a contract: whatever is wrong is named, with what would be right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.contract import check_output, unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import INPUT_DTYPES, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.kernels.formats import FORMATS

OP = Op(
    name="mul",
    summary="",
    source="",
    axes=("m", "n"),
    inputs=(
        Tensor("x", ("m", "n"), "float32", "", Values.FINITE, strided_rows=True),
        Tensor("w", ("n",), "int8", ""),
        Tensor("s", ("m",), "float32", "", Values.POSITIVE),
        Tensor("scale", (), "float32", "", Values.POSITIVE),
        Tensor("shift", (), "float32", "", Values.FINITE),
    ),
    outputs=(Tensor("y", ("m", "n"), "float32", ""),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=(),
    generate=lambda axes, family, rng: {},
    encode=lambda inputs, axes, format: {},
    outputs_like=lambda axes, key: {},
    reference=lambda inputs, axes, key: {},
    traffic=lambda axes, key: Traffic(0, 0, 0),
)
KEY = KernelKey("cpu", "mul", "none", "float32")


def arguments(**changes: Any) -> dict[str, Any]:
    right = {
        "x": np.ones((2, 3), np.float32),
        "w": np.ones(3, np.int8),
        "s": np.ones(2, np.float32),
        "scale": 0.5,
        "shift": np.float32(0),
    }
    return right | changes


def test_axes_follow_from_the_arguments() -> None:
    assert unify(OP, arguments()) == {"m": 2, "n": 3}
    assert unify(OP, arguments(), {"k": 7}) == {"k": 7, "m": 2, "n": 3}


def test_rows_may_lie_apart_where_the_contract_says_so() -> None:
    assert unify(OP, arguments(x=np.ones((2, 8), np.float32)[:, :3])) == {"m": 2, "n": 3}
    assert unify(OP, arguments(x=np.ones((4, 3), np.float32)[::2])) == {"m": 2, "n": 3}


def misaligned() -> Any:
    return np.frombuffer(bytearray(25), np.uint8)[1:].view(np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("argument", "value", "found", "legal"),
    [
        ("x", [[1.0, 2.0, 3.0]] * 2, "a list", "a NumPy array of float32"),
        ("x", None, "a NoneType", "a NumPy array"),
        ("x", np.ones((2, 3)), "float64", "float32"),
        ("x", np.ones((2, 3), ">f4"), ">f4", "native byte order"),
        ("x", np.ones(6, np.float32), "(6,)", "2 dimensions (m, n)"),
        ("x", np.ones((0, 3), np.float32), "empty (shape (0, 3))", "at least one element"),
        ("x", np.ones((2, 6), np.float32)[:, ::2], "strided", "ascontiguousarray"),
        ("x", np.ones((2, 3), np.float32)[::-1], "strided", "in order"),
        ("x", np.broadcast_to(np.ones(3, np.float32), (2, 3)), "strided", "in order"),
        ("x", misaligned(), "at address", "4-byte elements"),
        ("w", np.ones(4, np.int8), "(4,)", "n = 3"),
        ("w", np.ones(6, np.int8)[::2], "strided", "C-contiguous"),
        ("s", np.array([1, 0], np.float32), "0.0 at index 1", "above zero"),
        ("s", np.array([np.nan, 1], np.float32), "nan at index 0", "finite"),
        ("s", np.array([1, -2], np.float32), "-2.0 at index 1", "above zero"),
        ("scale", 0.0, "0.0", "above zero"),
        ("scale", -1, "-1", "above zero"),
        ("scale", float("nan"), "nan", "finite"),
        ("scale", 1e39, "1e+39", "float32"),
        ("scale", 1e-50, "1e-50", "above zero as float32"),
        ("scale", "big", "'big'", "a number"),
        ("scale", None, "None", "a number"),
        ("shift", float("inf"), "inf", "finite"),
    ],
)
def test_what_is_wrong_is_named(argument: str, value: Any, found: str, legal: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        unify(OP, arguments(**{argument: value}))
    assert caught.value.op == "mul"
    assert caught.value.argument == argument
    assert found in caught.value.found
    assert legal in caught.value.legal
    assert isinstance(caught.value, ValueError)


def test_outputs_are_checked_before_anything_is_written() -> None:
    inputs = arguments()
    tensor = OP.outputs[0]

    def check(value: Any, shape: tuple[int, ...] = (2, 3)) -> None:
        check_output(OP.name, tensor, value, shape, "float32", inputs)

    check(np.empty((2, 3), np.float32))
    read_only = np.empty((2, 3), np.float32)
    read_only.setflags(write=False)
    for value, found in (
        (np.empty((3, 2), np.float32), "(3, 2)"),
        (np.empty((2, 3), np.int32), "int32"),
        (read_only, "read-only"),
        (inputs["x"], "same memory as x"),
        (inputs["x"][:], "same memory as x"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            check(value)
        assert found in caught.value.found


@pytest.mark.parametrize(
    ("format", "weight_format", "input_dtype"),
    [("none", "none", "none"), ("tq2_0", "tq2_0", "none"), ("bfloat16", "none", "bfloat16")],
)
def test_a_key_names_its_weight_format_and_its_input_dtype(format: str, weight_format: str, input_dtype: str) -> None:
    key = KernelKey("cpu", "op", format, "int8")
    assert (key.weight_format, key.input_dtype, str(key)) == (weight_format, input_dtype, f"cpu/op/{format}/int8")


def test_no_weight_format_has_the_name_of_a_dtype() -> None:
    assert not set(INPUT_DTYPES) & set(FORMATS)
